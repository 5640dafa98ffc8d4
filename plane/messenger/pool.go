// SPDX-License-Identifier: Apache-2.0

package messenger

import "sync"

// pool runs jobs on goroutines, so many at once, and has more wait. Of one lane (a
// connection) only a part may run and wait, and lanes take turns: a peer that sends
// without end does not keep the others' messages waiting.
type pool struct {
	run                        func(*job)
	max, each                  int // running at once: in all, of one lane
	maxWaiting, eachWaiting    int
	maxWaitingBytes, laneBytes int

	mu      sync.Mutex
	running int
	waiting int
	bytes   int
	turns   []*lane // those that have jobs waiting, each once
	idle    []chan struct{}
}

// lane is what a pool keeps of one connection.
type lane struct {
	running int
	waiting []*job
	bytes   int
}

// submit runs the job now or later; false: too much waits.
func (p *pool) submit(l *lane, j *job) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running < p.max && l.running < p.each {
		p.start(l)
		go p.work(l, j)
		return true
	}
	size := len(j.body)
	if p.waiting >= p.maxWaiting || len(l.waiting) >= p.eachWaiting ||
		p.bytes+size > p.maxWaitingBytes || l.bytes+size > p.laneBytes {
		return false
	}
	if len(l.waiting) == 0 {
		p.turns = append(p.turns, l)
	}
	l.waiting = append(l.waiting, j)
	p.count(l, 1, size)
	return true
}

func (p *pool) start(l *lane) {
	p.running++
	l.running++
}

func (p *pool) count(l *lane, jobs, bytes int) {
	p.waiting += jobs
	p.bytes += bytes
	l.bytes += bytes
}

func (p *pool) work(l *lane, j *job) {
	for j != nil {
		p.run(j)
		l, j = p.next(l)
	}
}

// next ends a job of the lane and begins another one, of the lane whose turn it is.
func (p *pool) next(l *lane) (*lane, *job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running--
	l.running--
	for i, l := range p.turns {
		if l.running >= p.each {
			continue
		}
		j := l.waiting[0]
		l.waiting[0] = nil
		l.waiting = l.waiting[1:]
		p.count(l, -1, -len(j.body))
		p.turns = append(p.turns[:i], p.turns[i+1:]...)
		if len(l.waiting) > 0 {
			p.turns = append(p.turns, l)
		}
		p.start(l)
		return l, j
	}
	if p.running == 0 {
		for _, c := range p.idle {
			close(c)
		}
		p.idle = nil
	}
	return nil, nil
}

// rest is closed once nothing runs or waits.
func (p *pool) rest() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := make(chan struct{})
	if p.running == 0 {
		close(c)
	} else {
		p.idle = append(p.idle, c)
	}
	return c
}
