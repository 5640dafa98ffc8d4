// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"time"
)

// poll calls ready every 50 ms until it says yes or fails, or ctx ends.
func poll(ctx context.Context, ready func() (bool, error)) error {
	for {
		ok, err := ready()
		if ok || err != nil {
			return err
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// get says whether address answers 200 with a body that holds want. It leaves
// no connection open.
func get(ctx context.Context, address, want string) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return false
	}
	request.Close = true
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	return err == nil && response.StatusCode == http.StatusOK && bytes.Contains(body, []byte(want))
}

// freePorts returns n different TCP ports of 127.0.0.1 that were free a moment
// ago. They lie below 32768: no outgoing connection takes one by chance, and
// Dynamo reads its system port as a signed number of 16 bits.
func freePorts(n int) ([]int, error) {
	var ports []int
	var last error
	for range 200 {
		l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(12000)))
		if err != nil {
			last = err
			continue
		}
		defer l.Close() // only after all are chosen
		if ports = append(ports, l.Addr().(*net.TCPAddr).Port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("looking for free ports: %w", last)
}
