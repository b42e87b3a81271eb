package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/google/pprof/profile"
)

// pgoCommand is `bench pgo out.pgo cpu.pprof...`: it merges CPU profiles of -profile into
// one for profile-guided builds.
func pgoCommand(paths []string, stdout io.Writer) error {
	if len(paths) < 2 {
		return errors.New("pgo: where to write, and at least one CPU profile")
	}
	merged, err := pgo(paths[1:])
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := merged.Write(&text); err != nil {
		return fmt.Errorf("encode the profile: %w", err)
	}
	if err := os.WriteFile(paths[0], text.Bytes(), 0o644); err != nil { //nolint:gosec // nothing secret
		return fmt.Errorf("write the profile: %w", err)
	}
	if _, err := fmt.Fprintf(stdout, "%s: %d stacks in %d functions\n", paths[0], len(merged.Sample), len(merged.Function)); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// pgo merges CPU profiles and removes what `go build -pgo` does not use, especially the
// names of files and binaries, which depend on the machine that built them.
func pgo(paths []string) (*profile.Profile, error) {
	var all []*profile.Profile
	for _, path := range paths {
		p, err := readProfile(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		const inlined, functions, files, lines, columns, addresses = true, true, false, true, false, false
		if err := p.Aggregate(inlined, functions, files, lines, columns, addresses); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		for _, s := range p.Sample {
			s.Label, s.NumLabel, s.NumUnit = nil, nil, nil
		}
		for _, l := range p.Location {
			l.Mapping = nil
		}
		p.Mapping, p.Comments = nil, nil
		all = append(all, p)
	}
	merged, err := profile.Merge(all)
	if err != nil {
		return nil, fmt.Errorf("merge profiles: %w", err)
	}
	return merged, nil
}

// readProfile reads a profile, which must be of CPU time.
func readProfile(path string) (*profile.Profile, error) {
	text, err := os.ReadFile(path) //nolint:gosec // the user says which
	if err != nil {
		return nil, fmt.Errorf("read the profile: %w", err)
	}
	p, err := profile.ParseData(text)
	if err != nil {
		return nil, fmt.Errorf("read the profile: %w", err)
	}
	for _, t := range p.SampleType {
		if t.Type == "cpu" {
			return p, nil
		}
	}
	return nil, errors.New("is not a profile of CPU time")
}
