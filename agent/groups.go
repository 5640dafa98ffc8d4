// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os/user"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

func lookupGroup(name string) (int, error) {
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(g.Gid)
}

// inGroup reports whether the peer is in the group, as its first or by /etc/group.
func inGroup(peer *unix.Ucred, gid int) bool {
	if int(peer.Gid) == gid {
		return true
	}
	u, err := user.LookupId(strconv.Itoa(int(peer.Uid)))
	if err != nil {
		return false
	}
	ids, err := u.GroupIds()
	return err == nil && slices.Contains(ids, strconv.Itoa(gid))
}
