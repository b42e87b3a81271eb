package main

import "github.com/everpost/everpost/bench/internal/installation"

// instance is a standalone installation with its API.
type instance struct {
	*installation.Instance

	api client // nil before the start
}

func newInstance(dir, binary string, further map[string]string) (*instance, error) {
	in, err := installation.New(dir, binary, further)
	return &instance{Instance: in}, err
}
