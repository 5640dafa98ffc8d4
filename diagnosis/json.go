// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"encoding/json"
	"fmt"
	"io"
)

// WriteJSON writes the report as indented JSON of docs/report.schema.json.
func WriteJSON(w io.Writer, r *Report) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(cleaned(r)); err != nil {
		return fmt.Errorf("writing the report as JSON: %w", err)
	}
	return nil
}
