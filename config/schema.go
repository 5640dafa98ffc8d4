// SPDX-License-Identifier: Apache-2.0

package config

// Schema returns a JSON schema (draft 2020-12) of the configuration, for editors and
// for checks before a file reaches a node. [Load] checks more: the range of durations
// and sizes with a unit, duplicate keys, and what must fit together.
func Schema() []byte {
	root := object("The configuration of velo-agent. No key is required.")
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "velo-agent.yaml"
	top := root["properties"].(map[string]any)
	for i := range keys {
		k := &keys[i]
		s := k.kind.schema()
		s["description"] = k.help + " " + k.facts(Default())
		s["default"] = k.kind.json(k.standard)
		section, own := k.split()
		if section == "" {
			top[own] = s
			continue
		}
		if top[section] == nil {
			top[section] = object(sections[section])
		}
		top[section].(map[string]any)["properties"].(map[string]any)[own] = s
	}
	return encode(root)
}

func object(description string) map[string]any {
	return map[string]any{
		"type": "object", "description": description,
		"properties": map[string]any{}, "additionalProperties": false,
	}
}
