package main

import (
	"fmt"
	"time"
)

// shape is how an installation is made of processes.
type shape struct {
	name    string
	apis    int
	workers int
	serves  int // processes that are both
}

// The shapes. The zero counts of standalone mean one process with PostgreSQL and Temporal of its own.
func shapes() []shape {
	return []shape{
		{name: "standalone"},
		{name: "split", apis: 1, workers: 1},
		{name: "fleet", apis: 2, workers: 3},
		{name: "serve", serves: 2},
	}
}

func (s shape) alone() bool { return s.apis+s.workers+s.serves == 0 }

// spread is how long a change of an endpoint takes to be known to every process, as the API promises it: the one that makes it knows it at once.
func (s shape) spread() time.Duration {
	if s.alone() {
		return earliness
	}
	return 2 * time.Second
}

// senders is how many processes send requests to receivers.
func (s shape) senders() int { return max(1, s.workers+s.serves) }

func shapeNamed(name string) (shape, error) {
	for _, s := range shapes() {
		if s.name == name {
			return s, nil
		}
	}
	return shape{}, fmt.Errorf("there is no shape %q", name)
}
