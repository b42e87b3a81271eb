package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/everpost/everpost/bench/internal/installation"
)

// result is a run's result as stored.
type result struct {
	At       time.Time             `json:"at"`
	Quick    bool                  `json:"quick"`
	Runs     int                   `json:"runs"`
	Settings map[string]string     `json:"settings,omitempty"` // of the installation, besides the default ones
	Machine  *installation.Machine `json:"machine"`
	Rows     []*measured           `json:"rows"`
	Skipped  []skipped             `json:"skipped,omitempty"`
}

// measured is one work in all rounds.
type measured struct {
	Name   string    `json:"name"`
	About  string    `json:"about"`
	Median figures   `json:"median"`
	Rounds []figures `json:"rounds"`
}

// skipped is a work that could not be run.
type skipped struct {
	Name string `json:"name"`
	Why  string `json:"why"`
}

// add appends a round's row to the row of that name.
func (r *result) add(one row) {
	m := r.row(one.name)
	if m == nil {
		m = &measured{Name: one.name, About: one.about}
		r.Rows = append(r.Rows, m)
	}
	m.Rounds = append(m.Rounds, one.figures)
	m.Median = median(m.Rounds)
}

func (r *result) row(name string) *measured {
	for _, m := range r.Rows {
		if m.Name == name {
			return m
		}
	}
	return nil
}

func (r *result) skip(name string, why error) {
	if one := (skipped{name, why.Error()}); !slices.Contains(r.Skipped, one) {
		r.Skipped = append(r.Skipped, one)
	}
}

// sound returns nil when no delivery was lost or duplicated.
func (r *result) sound() error {
	var all []error
	for _, m := range r.Rows {
		if n, more := m.Median[lost], m.Median[duplicates]; n > 0 || more > 0 {
			all = append(all, fmt.Errorf("%s: %.0f deliveries were lost and %.0f arrived once more", m.Name, n, more))
		}
	}
	return errors.Join(all...)
}

const dateLayout = "2006-01-02"

// keep writes the result into the directory as <date>-<n>.json with the first free n, and
// returns the path.
func (r *result) keep(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // for everyone to read, as the rest of the tree
		return "", fmt.Errorf("keep the figures: %w", err)
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return "", fmt.Errorf("keep the figures: %w", err)
	}
	for n := 1; ; n++ {
		path := filepath.Join(dir, fmt.Sprintf("%s-%d.json", r.At.Format(dateLayout), n))
		file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644) //nolint:gosec // as above
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("keep the figures: %w", err)
		}
		_, err = file.Write(append(text, '\n'))
		if err = errors.Join(err, file.Close()); err != nil {
			return "", fmt.Errorf("keep the figures: %w", err)
		}
		return path, nil
	}
}

// load reads a stored result.
func load(path string) (*result, error) {
	text, err := os.ReadFile(path) //nolint:gosec // the user says which
	if err != nil {
		return nil, fmt.Errorf("read a kept run: %w", err)
	}
	r := &result{Machine: &installation.Machine{}}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("read a kept run: %s: %w", path, err)
	}
	return r, nil
}

// kept returns the paths of the stored runs in a directory, oldest first. It ignores files
// with other names.
func kept(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("look for kept runs: %w", err)
	}
	type run struct {
		date, path string
		n          int
	}
	var runs []run
	for _, entry := range entries {
		name, isJSON := strings.CutSuffix(entry.Name(), ".json")
		if !isJSON || len(name) <= len(dateLayout) || name[len(dateLayout)] != '-' {
			continue
		}
		date := name[:len(dateLayout)]
		n, err := strconv.Atoi(name[len(dateLayout)+1:])
		if _, dateErr := time.Parse(dateLayout, date); err != nil || dateErr != nil {
			continue
		}
		runs = append(runs, run{date, filepath.Join(dir, entry.Name()), n})
	}
	slices.SortFunc(runs, func(a, b run) int { return cmp.Or(cmp.Compare(a.date, b.date), cmp.Compare(a.n, b.n)) })
	var paths []string
	for _, one := range runs {
		paths = append(paths, one.path)
	}
	return paths, nil
}
