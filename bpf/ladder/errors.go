// SPDX-License-Identifier: Apache-2.0

package ladder

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// Why a rung does not hold. Each names the next step.
var (
	ErrLockdown   = errors.New("the kernel is locked down and refuses fentry and fexit even to root; boot without lockdown to use this rung")
	ErrNoBTF      = errors.New("the kernel shows no BTF at /sys/kernel/btf/vmlinux; use a kernel built with CONFIG_DEBUG_INFO_BTF, and mount /sys into the container")
	ErrNoHook     = errors.New("this kernel does not have the hook")
	ErrCapability = errors.New("missing right")
	ErrRefused    = errors.New("the verifier refused the program")
)

const btfPath = "/sys/kernel/btf/vmlinux"

// Explain puts the sentinel of the cause in front of what the kernel answered.
func Explain(err error) error {
	if err == nil {
		return nil
	}
	for _, known := range []error{ErrLockdown, ErrNoBTF, ErrNoHook, ErrCapability, ErrRefused} {
		if errors.Is(err, known) {
			return err
		}
	}
	// Without the rights even "not supported" may be what trying it answered.
	if missing := MissingCapabilities(); len(missing) > 0 {
		return fmt.Errorf("%w: %s (run as root, or: setcap cap_bpf,cap_perfmon+ep on the binary)", ErrCapability, strings.Join(missing, ", "))
	}
	var verifier *ebpf.VerifierError
	switch {
	case errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) && !errors.As(err, &verifier):
		if err := CanLoad(); err != nil {
			return fmt.Errorf("%w: bpf(2) is refused although the capabilities are there (seccomp, or a container without them): %w", ErrCapability, err)
		}
		return ErrLockdown
	case noBTF():
		return ErrNoBTF
	case errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH):
		return fmt.Errorf("%w: %w", ErrNoHook, err)
	case errors.As(err, &verifier):
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return err
}

func noBTF() bool {
	_, err := os.Stat(btfPath)
	return err != nil
}

// needed are the capabilities that the probes ask for; SYS_ADMIN holds them all.
var needed = []struct {
	name string
	bit  uint
}{{"CAP_BPF", unix.CAP_BPF}, {"CAP_PERFMON", unix.CAP_PERFMON}}

// Has reports whether the process has a capability; where it cannot be asked, it
// is taken to.
func Has(bit uint) bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&header, &data[0]) != nil {
		return true
	}
	return data[bit/32].Effective&(1<<(bit%32)) != 0
}

// MissingCapabilities names the capabilities that the process lacks for the probes.
func MissingCapabilities() []string {
	if Has(unix.CAP_SYS_ADMIN) {
		return nil
	}
	var missing []string
	for _, c := range needed {
		if !Has(c.bit) {
			missing = append(missing, c.name)
		}
	}
	return missing
}

// CanLoad tries the smallest program there is: it tells whether bpf(2) is open to
// this process at all. The answer is remembered.
var CanLoad = sync.OnceValue(func() error {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type:         ebpf.RawTracepoint,
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
		License:      "GPL",
	})
	if err != nil {
		return fmt.Errorf("loading the smallest program: %w", err)
	}
	return p.Close()
})
