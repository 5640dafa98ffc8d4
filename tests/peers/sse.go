// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Kind says what one server-sent event of a streamed answer is.
type Kind uint8

// The kinds of events. Content wins: an event with the role and with content is
// Content.
const (
	Other   Kind = iota // comment, finish reason, usage, or anything without content
	Role                // the role-only event
	Content             // carries content (or reasoning content) of the answer
	Failure             // an error object in the stream
	Done                // "[DONE]"
)

var kindNames = [...]string{"other", "role", "content", "failure", "done"}

// String returns the kind's name.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "invalid"
}

// event is one server-sent event: its kind and where it ends in the body.
type event struct {
	kind Kind
	end  int
}

// events takes a whole body apart.
func events(body []byte) ([]event, error) {
	var list []event
	for at := 0; at < len(body); {
		length := bytes.Index(body[at:], []byte("\n\n"))
		if length < 0 {
			return list, fmt.Errorf("reading the events: %d bytes at the end are no event", len(body)-at)
		}
		kind, err := classify(body[at : at+length])
		if err != nil {
			return list, err
		}
		at += length + 2
		list = append(list, event{kind: kind, end: at})
	}
	return list, nil
}

// chunk is what the client looks at in an OpenAI chat completion chunk.
type chunk struct {
	Error   json.RawMessage `json:"error"`
	Choices []struct {
		Text  string `json:"text"` // the older completions endpoint
		Delta struct {
			Role      string `json:"role"`
			Content   string `json:"content"`
			Reasoning string `json:"reasoning_content"`
		} `json:"delta"`
		FinishReason *string `json:"finish_reason"`
	} `json:"choices"`
}

func classify(text []byte) (Kind, error) {
	var data []byte
	for line := range bytes.Lines(text) {
		if value, ok := bytes.CutPrefix(bytes.TrimRight(line, "\r\n"), []byte("data:")); ok {
			data = append(data, bytes.TrimPrefix(value, []byte(" "))...)
		}
	}
	switch {
	case len(data) == 0:
		return Other, nil
	case string(data) == "[DONE]":
		return Done, nil
	}
	var c chunk
	if err := json.Unmarshal(data, &c); err != nil {
		return Other, fmt.Errorf("reading an event: %w", err)
	}
	if len(c.Error) > 0 && string(c.Error) != "null" {
		return Failure, nil
	}
	kind := Other
	for _, choice := range c.Choices {
		switch {
		case choice.Delta.Content != "" || choice.Delta.Reasoning != "" || choice.Text != "":
			return Content, nil
		case choice.Delta.Role != "" && choice.FinishReason == nil:
			kind = Role
		}
	}
	return kind, nil
}
