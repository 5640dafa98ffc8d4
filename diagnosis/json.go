// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"encoding/json"
	"fmt"
	"io"
)

// WriteJSON writes the report as indented JSON of docs/report.schema.json.
func WriteJSON(w io.Writer, r *Report) error {
	if err := writeJSON(w, cleaned(r)); err != nil {
		return fmt.Errorf("writing the report as JSON: %w", err)
	}
	return nil
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
