// SPDX-License-Identifier: Apache-2.0

package privileged

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"runtime"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// kept are the capabilities that the helper keeps, each with what it is for. The
// table in docs/rights.md names the same.
var kept = []struct {
	cap  int
	name string
	why  string
}{
	{unix.CAP_BPF, "CAP_BPF", "loading programs and maps"},
	{unix.CAP_PERFMON, "CAP_PERFMON", "attaching programs to tracepoints, and reading what they read"},
	{unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN", "entering other network namespaces; run statistics of the programs"},
	{unix.CAP_SYS_PTRACE, "CAP_SYS_PTRACE", "seeing which process holds a socket, in /proc of other users"},
	{unix.CAP_NET_ADMIN, "CAP_NET_ADMIN", "listing the sockets of a namespace with their details"},
	{unix.CAP_DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH", "reading /proc and cgroup files of other users"},
}

// What follows acts on the calling thread, which must be locked and go on to exec:
// rights belong to threads, and of all threads of a process that one alone goes on.

// cutBounding leaves of the bounding set what is in mask.
func cutBounding(mask uint64) error {
	for c := range unix.CAP_LAST_CAP + 1 {
		if mask&(1<<c) != 0 {
			continue
		}
		// EINVAL: this kernel has no such capability. EPERM: there is no right to
		// cut, and none that could be gained either (no new privileges).
		err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EPERM) {
			return fmt.Errorf("cutting capability %d from the bounding set: %w", c, err)
		}
	}
	return nil
}

// keepOnly gives up all capabilities but those in mask, lets these pass through exec
// for any user, and refuses new ones.
func keepOnly(mask uint64) error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&head, &data[0]); err != nil {
		return fmt.Errorf("reading the capabilities: %w", err)
	}
	for i := range data {
		data[i].Permitted &= uint32(mask >> (32 * i))
		data[i].Effective, data[i].Inheritable = data[i].Permitted, data[i].Permitted
	}
	if err := unix.Capset(&head, &data[0]); err != nil {
		return fmt.Errorf("giving up capabilities: %w", err)
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("clearing the ambient capabilities: %w", err)
	}
	for c := range unix.CAP_LAST_CAP + 1 {
		if data[c/32].Permitted&(1<<(c%32)) == 0 {
			continue
		}
		if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, uintptr(c), 0, 0); err != nil {
			return fmt.Errorf("keeping capability %d: %w", c, err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("refusing new privileges: %w", err)
	}
	return nil
}

// Identity is who the daemon becomes.
type Identity struct{ UID, GID int }

// Lookup finds a user by name or number. ok is false where this process is not root
// and stays who it is.
func Lookup(name string) (id Identity, ok bool, err error) {
	if os.Geteuid() != 0 {
		return Identity{os.Getuid(), os.Getgid()}, false, nil
	}
	if n, err := strconv.Atoi(name); err == nil && n > 0 {
		return Identity{n, n}, true, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return id, false, fmt.Errorf("looking up the user that the daemon becomes: %w; set `user:` in the configuration to one that exists", err)
	}
	if id.UID, err = strconv.Atoi(u.Uid); err != nil {
		return id, false, fmt.Errorf("user %s has the number %q: %w", name, u.Uid, err)
	}
	if id.GID, err = strconv.Atoi(u.Gid); err != nil {
		return id, false, fmt.Errorf("user %s has the group %q: %w", name, u.Gid, err)
	}
	if id.UID == 0 {
		return id, false, fmt.Errorf("the daemon would stay root: set `user:` in the configuration to another than %s", name)
	}
	return id, true, nil
}

// Become gives up every right for good and runs the program anew with argv and env:
// as id where change is set, without capabilities, and never to gain any. Open files
// that are not close-on-exec go along. It returns only an error.
func Become(id Identity, change bool, argv, env []string) error {
	runtime.LockOSThread()
	if err := cutBounding(0); err != nil {
		return err
	}
	if change {
		if err := setIdentity(id); err != nil {
			return err
		}
	}
	if err := keepOnly(0); err != nil {
		return err
	}
	if err := unix.Exec("/proc/self/exe", argv, env); err != nil {
		return fmt.Errorf("running %s anew as user %d: %w; its file must be executable for that user", argv[0], id.UID, err)
	}
	return nil
}

// setIdentity changes the calling thread alone: the wrappers of package syscall
// would change all of them, and cannot in a program with C code.
func setIdentity(id Identity) error {
	if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, 0, uintptr(unsafe.Pointer(nil)), 0); e != 0 {
		return fmt.Errorf("giving up groups: %w", e)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(id.GID), uintptr(id.GID), uintptr(id.GID)); e != 0 {
		return fmt.Errorf("becoming group %d: %w", id.GID, e)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(id.UID), uintptr(id.UID), uintptr(id.UID)); e != 0 {
		return fmt.Errorf("becoming user %d: %w", id.UID, e)
	}
	return nil
}

// RunAsHelper leaves this process the capabilities of a helper and runs the program
// anew with argv and env. It returns only an error.
func RunAsHelper(argv, env []string) error {
	runtime.LockOSThread()
	var mask uint64
	for _, k := range kept {
		mask |= 1 << k.cap
	}
	if err := cutBounding(mask); err != nil {
		return err
	}
	if err := keepOnly(mask); err != nil {
		return err
	}
	if err := unix.Exec("/proc/self/exe", argv, env); err != nil {
		return fmt.Errorf("running the helper: %w", err)
	}
	return nil
}
