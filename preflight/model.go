// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"path"
	"strings"
)

// modelFlags are the flags by which engines are told what to serve, the name that
// clients use before the place that it is loaded from.
var modelFlags = []string{"--served-model-name", "--alias", "-a", "--model-name", "--model", "--model-path", "--model-id", "-m", "--hf-repo", "-hf"}

const longestModel = 128

// ModelOf returns the name of the model that an engine's command line names, or "".
// A path is cut to its last part.
func ModelOf(args []string) string {
	for _, flag := range modelFlags {
		for i, a := range args {
			if v, ok := strings.CutPrefix(a, flag+"="); ok {
				return modelName(v)
			}
			if a == flag && i+1 < len(args) && !(flag == "-m" && isPython(path.Base(args[0]))) {
				return modelName(args[i+1])
			}
		}
	}
	for i, a := range args { // vllm serve MODEL
		if a == "serve" && i > 0 && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
			return modelName(args[i+1])
		}
	}
	return ""
}

// modelName is a repository's name as it is, and a file's without its folders.
func modelName(v string) string {
	v = clean(v)
	if strings.HasPrefix(v, "/") || strings.HasPrefix(v, ".") || strings.Count(v, "/") > 1 {
		v = path.Base(v)
	}
	if len(v) > longestModel {
		v = v[:longestModel]
	}
	return strings.ToValidUTF8(v, "")
}
