package agentfile

import (
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v4"
)

// secret matches what a location has beside a key or a signature, and the latter.
var secret = regexp.MustCompile(`(?i)\b(sig|accountkey|sharedaccesssignature)=`)

// refuseSecrets refuses a file in which anything looks like a secret.
func (p *parser) refuseSecrets(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && secret.MatchString(n.Value) {
		p.fail(n, "this looks like a key or a signature, which must not stand in the file: put the location into an environment variable or a file, and name that under accounts")
	}
	for _, one := range n.Content { // aliases are not followed, and the depth is bounded
		p.refuseSecrets(one)
	}
}

// quote quotes what stands in the file, unless it looks like a secret.
func quote(text string) string {
	const longest = 80
	if secret.MatchString(text) {
		return "something with a secret"
	}
	if len(text) > longest {
		text = text[:longest] + "…"
	}
	return strconv.Quote(text)
}
