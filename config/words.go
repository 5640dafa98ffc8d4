// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net"
	"net/netip"
	"path"
	"regexp"
	"strconv"
)

// The strings of the table. A check returns what is wrong, to follow the value in
// a sentence.
var (
	address = words{
		what: "an address host:port", like: `":9766"`, most: 300, empty: true,
		pattern: `^(\[[^\]]+\]|[^:\s]*):[0-9]{1,5}$`, check: isAddress,
	}
	reachable = words{
		what: "an IP address and port", like: `"192.0.2.5:9767"`, most: 64, empty: true,
		pattern: `^(\[[0-9A-Fa-f:.]+\]|[0-9.]+):[0-9]{1,5}$`, check: isReachable,
	}
	optionalFile = words{
		what: "an absolute path", like: "/etc/velo-agent/web.yaml", most: longestPath, empty: true,
		pattern: "^/", check: isFile,
	}
	directory = words{
		what: "an absolute path", like: "/var/lib/velo-agent/record", most: longestPath,
		pattern: "^/", check: isFile,
	}
	// The kernel's sun_path has 108 bytes, the last of them NUL.
	socketPath = words{
		what: "an absolute path", like: "/run/velo-agent/agent.sock", most: 107,
		pattern: "^/", check: isFile,
	}
	cgroup = words{
		what: "a cgroup's path from its root on", like: "/system.slice/vllm.service", most: longestPath,
		pattern: "^/", check: isAbsolute,
	}
	user = words{
		what: "a user's name or number other than root", like: "nobody", most: 32,
		pattern: accountPattern, check: isUnprivileged,
	}
	identity = words{
		what: "an identity and an instance", like: "spiffe://cluster/worker=*", most: 1024,
		pattern: identityPattern, check: isIdentity,
	}
	group = words{
		what: "a group's name or number", like: "monitoring", most: 32, empty: true,
		pattern: accountPattern, check: isAccount,
	}
)

const (
	longestPath     = 4095
	identityPattern = `^.+=([*]|[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})$`
	accountPattern  = `^([A-Za-z_][A-Za-z0-9_.-]*[$]?|[0-9]+)$`
)

var (
	account = regexp.MustCompile(accountPattern)
	allowed = regexp.MustCompile(identityPattern)
	host    = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?$`)
)

func isAddress(s string) string {
	h, p, err := net.SplitHostPort(s)
	if err != nil {
		return "is no address"
	}
	if !digits(p) {
		return "has no port number behind the colon"
	}
	if _, err := strconv.ParseUint(p, 10, 16); err != nil {
		return "has a port above 65535"
	}
	if _, err := netip.ParseAddr(h); h != "" && err != nil && !host.MatchString(h) {
		return "has no host before the colon"
	}
	return ""
}

// isReachable is what messenger.Listen.Advertise takes.
func isReachable(s string) string {
	at, err := netip.ParseAddrPort(s)
	switch ip := at.Addr().Unmap(); {
	case err != nil:
		return "is no IP address and port"
	case ip.IsUnspecified(), ip.IsMulticast(), ip.Zone() != "":
		return "has an IP address that nobody else can dial"
	case at.Port() == 0:
		return "has port 0"
	}
	return ""
}

func isAbsolute(s string) string {
	if !path.IsAbs(s) {
		return "does not begin with /"
	}
	return ""
}

func isFile(s string) string {
	if wrong := isAbsolute(s); wrong != "" {
		return wrong
	}
	if path.Clean(s) == "/" {
		return "is the root directory"
	}
	return ""
}

func isIdentity(s string) string {
	if !allowed.MatchString(s) {
		return "is not IDENTITY=INSTANCE, the instance a UUID or *"
	}
	return ""
}

func isAccount(s string) string {
	if !account.MatchString(s) {
		return "is no name and no number"
	}
	// 2^32-1 means "leave it as it is" to setuid and setgid.
	if n, err := strconv.ParseUint(s, 10, 32); digits(s) && (err != nil || n == 1<<32-1) {
		return "is above the largest number of an account"
	}
	return ""
}

func isUnprivileged(s string) string {
	if n, err := strconv.ParseUint(s, 10, 32); s == "root" || err == nil && n == 0 {
		return "is root, whose rights the daemon gives up"
	}
	return isAccount(s)
}
