// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Dynamo is a running pair of Dynamo's frontend and its mock worker, found
// through files, with the TCP response plane. Every port is on 127.0.0.1, but
// for the four that the worker's event plane binds to all addresses whatever it
// is told; only worker load figures pass there.
type Dynamo struct {
	HTTPPort     int    // the frontend's, for clients
	ResponsePort int    // the frontend's: the worker opens one connection per stream and sends tokens
	RequestPort  int    // the worker's: one connection carries all requests
	SystemPort   int    // the worker's, /metrics and /health
	FrontendPID  int    // process name "python"
	WorkerPID    int    // process name "python"
	Model        string // the name to ask for
	URL          string // http://127.0.0.1:HTTPPort

	frontend, worker *process
	runDir           string
}

// StartDynamo installs Dynamo if necessary and starts a frontend and a mock
// worker. It returns when a first stream went through. The error wraps
// ErrUnavailable where Dynamo cannot be installed. ctx bounds the start only;
// Stop ends both processes.
func StartDynamo(ctx context.Context, config Config) (*Dynamo, error) {
	s, err := config.open()
	if err != nil {
		return nil, err
	}
	var model string
	err = s.locked(ctx, func() error {
		if err := s.install(ctx, "model", "dynamo"); err != nil {
			return err
		}
		model, err = s.modelDir(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(4)
	if err != nil {
		return nil, err
	}
	runDir, err := os.MkdirTemp(s.dir, "run-dynamo-")
	if err != nil {
		return nil, fmt.Errorf("making Dynamo's folder: %w", err)
	}
	d := &Dynamo{
		HTTPPort: ports[0], ResponsePort: ports[1], RequestPort: ports[2], SystemPort: ports[3],
		Model: TinyName, URL: fmt.Sprintf("http://127.0.0.1:%d", ports[0]), runDir: runDir,
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := d.start(ctx, s.python(), model, config.Speedup); err != nil {
		return nil, errors.Join(err, d.Stop())
	}
	s.say("Dynamo answers on port %d (frontend pid %d), response plane on %d, worker pid %d",
		d.HTTPPort, d.FrontendPID, d.ResponsePort, d.WorkerPID)
	return d, nil
}

func (d *Dynamo) start(ctx context.Context, python, model string, speedup float64) (err error) {
	if speedup == 0 {
		speedup = 1
	}
	env := d.environment()
	d.frontend, err = startProcess("Dynamo's frontend", filepath.Join(d.runDir, "frontend"), env, []string{
		python, "-m", "dynamo.frontend",
		"--http-host", "127.0.0.1", "--http-port", strconv.Itoa(d.HTTPPort), "--router-mode", "round-robin",
	})
	if err != nil {
		return err
	}
	d.FrontendPID = d.frontend.pid
	env = append(env, "DYN_SYSTEM_HOST=127.0.0.1", "DYN_SYSTEM_PORT="+strconv.Itoa(d.SystemPort))
	d.worker, err = startProcess("Dynamo's worker", filepath.Join(d.runDir, "worker"), env, []string{
		python, "-m", "dynamo.mocker", "--model-path", model, "--model-name", d.Model,
		"--max-num-seqs", "4096", "--speedup-ratio", strconv.FormatFloat(speedup, 'g', -1, 64),
	})
	if err != nil {
		return err
	}
	d.WorkerPID = d.worker.pid
	return d.await(ctx)
}

func (d *Dynamo) environment() []string {
	home := filepath.Join(d.runDir, "home")
	env := []string{
		"HOME=" + home, "HF_HUB_OFFLINE=1", "DYN_LOG=warn",
		"DYN_DISCOVERY_BACKEND=file", "DYN_FILE_KV=" + filepath.Join(d.runDir, "kv"),
		"DYN_REQUEST_PLANE=tcp", "DYN_RESPONSE_PLANE=tcp", "DYN_EVENT_PLANE=zmq",
		"DYN_TCP_RPC_HOST=127.0.0.1", "DYN_TCP_RESPONSE_STREAM_HOST=127.0.0.1", "DYN_EVENT_PLANE_HOST=127.0.0.1",
		"DYN_TCP_RPC_PORT=" + strconv.Itoa(d.RequestPort),
		"DYN_TCP_RESPONSE_STREAM_PORT=" + strconv.Itoa(d.ResponsePort),
	}
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "DYN_") && !strings.HasPrefix(kv, "HOME=") && !strings.HasPrefix(kv, "HF_") {
			env = append(env, kv)
		}
	}
	return env
}

// await returns when the model is listed and one stream went through.
func (d *Dynamo) await(ctx context.Context) error {
	err := poll(ctx, func() (bool, error) {
		if err := errors.Join(d.frontend.exited(), d.worker.exited()); err != nil {
			return false, err
		}
		if !get(ctx, d.URL+"/v1/models", `"`+d.Model+`"`) {
			return false, nil
		}
		_, err := Stream(ctx, d.URL, d.Model, Options{Tokens: 1, Timeout: 5 * time.Second})
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for Dynamo: %w: %s", err, d.worker.tail())
	}
	return nil
}

// PauseWorker stops the worker process (SIGSTOP), waits for d and continues it
// (SIGCONT), also where ctx ends first. It returns how long the worker was
// stopped by this process's clock.
func (d *Dynamo) PauseWorker(ctx context.Context, pause time.Duration) (time.Duration, error) {
	start := Now()
	if err := d.worker.signal(unix.SIGSTOP); err != nil {
		return 0, err
	}
	waitErr := sleep(ctx, pause)
	err := d.worker.signal(unix.SIGCONT)
	return time.Duration(Now() - start), errors.Join(waitErr, err)
}

// Stop ends the worker, then the frontend, and removes their files. A second
// call does nothing.
func (d *Dynamo) Stop() error {
	var errs []error
	for _, p := range []*process{d.worker, d.frontend} {
		if p != nil {
			errs = append(errs, p.stop())
		}
	}
	os.RemoveAll(d.runDir)
	return errors.Join(errs...)
}
