package main

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

//go:embed bugs/*.patch
var patches embed.FS

// plantedBug is a possible mistake, as a patch, with the run that should find it.
type plantedBug struct {
	name, what string
	patch      []byte
	classes    []class
	shape      shape
	seeds      int // at most
}

// found is what became of a planted bug: a line of the table.
type found struct {
	Bug     string  `json:"bug"`
	What    string  `json:"what"`
	Class   string  `json:"class"` // that found it; "" if none did
	Shape   string  `json:"shape"`
	Seeds   int     `json:"seeds"` // that were needed
	Seconds float64 `json:"seconds"`
	Finding string  `json:"finding"` // the first one
}

// plantedBugs reads all patches.
func plantedBugs() ([]plantedBug, error) {
	entries, err := patches.ReadDir("bugs")
	if err != nil {
		return nil, fmt.Errorf("list the planted bugs: %w", err)
	}
	all := make([]plantedBug, 0, len(entries))
	for _, entry := range entries {
		text, err := patches.ReadFile(path.Join("bugs", entry.Name()))
		if err != nil {
			return nil, fmt.Errorf("read a planted bug: %w", err)
		}
		b, err := parseBug(strings.TrimSuffix(entry.Name(), ".patch"), text)
		if err != nil {
			return nil, fmt.Errorf("planted bug %s: %w", entry.Name(), err)
		}
		all = append(all, b)
	}
	return all, nil
}

// parseBug reads a patch and the four lines before it.
func parseBug(name string, text []byte) (b plantedBug, err error) {
	head, _, _ := bytes.Cut(text, []byte("\n\n"))
	about := map[string]string{}
	for line := range strings.Lines(string(head)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		about[key] = value
	}
	b = plantedBug{name: name, what: about["What"], patch: text}
	var failures [3]error
	b.classes, failures[0] = selected(about["Classes"])
	b.shape, failures[1] = shapeNamed(about["Shape"])
	b.seeds, failures[2] = strconv.Atoi(about["Seeds"])
	if b.what == "" {
		return b, errors.New("it does not say what it is")
	}
	return b, errors.Join(failures[:]...)
}

var patchedFile = regexp.MustCompile(`(?m)^\+{3} b/(\S+)`)

// apply writes the patched files below a directory and returns the overlay with which go builds the source as if it were patched.
func (b plantedBug) apply(ctx context.Context, source, into string) (overlay string, err error) {
	if source, err = filepath.Abs(source); err != nil {
		return "", fmt.Errorf("find the source: %w", err)
	}
	replace := map[string]string{}
	for _, match := range patchedFile.FindAllSubmatch(b.patch, -1) {
		name := string(match[1])
		text, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return "", fmt.Errorf("read what is patched: %w", err)
		}
		copied := filepath.Join(into, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(copied), 0o755), os.WriteFile(copied, text, 0o644)); err != nil {
			return "", fmt.Errorf("copy what is patched: %w", err)
		}
		replace[filepath.Join(source, name)] = copied
	}
	command := exec.CommandContext(ctx, "git", "apply", "-")
	command.Dir, command.Stdin = into, bytes.NewReader(b.patch)
	command.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(into)) // the copy is in no repository
	if text, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("apply %s: %w\n%s", b.name, err, text)
	}
	overlay = filepath.Join(into, "overlay.json")
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err == nil {
		err = os.WriteFile(overlay, text, 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("write the overlay: %w", err)
	}
	return overlay, nil
}

// plantedFile is the file of a directory that the planted bugs are written to.
const plantedFile = "planted.json"

// runPlanted plants each bug, one at a time, and runs what should find it.
func runPlanted(ctx context.Context, names, source, results string, stdout io.Writer) error {
	bugs, err := plantedBugs()
	if err != nil {
		return err
	}
	made, missed := 0, 0
	for _, b := range bugs {
		if names != "all" && !slices.Contains(strings.Split(names, ","), b.name) {
			continue
		}
		f, err := b.run(ctx, source)
		if err != nil {
			return fmt.Errorf("planted bug %s: %w", b.name, err)
		}
		made++
		if f.Class == "" {
			missed++
		}
		fmt.Fprintf(stdout, "%-28s found by %q after %d seeds, %.0f s: %s\n", f.Bug, f.Class, f.Seeds, f.Seconds, f.Finding)
		if results != "" {
			if err := keepPlanted(results, f); err != nil {
				return err
			}
		}
	}
	if missed > 0 {
		return fmt.Errorf("%d of %d planted bugs were not found", missed, made)
	}
	return nil
}

// run builds the bug and runs seeds of its classes until one fails.
func (b plantedBug) run(ctx context.Context, source string) (found, error) {
	f := found{Bug: b.name, What: b.what, Shape: b.shape.name}
	work, err := os.MkdirTemp("", "everpost-faults-")
	if err != nil {
		return f, fmt.Errorf("make a directory: %w", err)
	}
	defer os.RemoveAll(work)
	overlay, err := b.apply(ctx, source, work)
	if err != nil {
		return f, err
	}
	binaries, err := build(ctx, source, work, "-overlay", overlay)
	if err != nil {
		return f, err
	}
	begun := time.Now()
	h := &host{shape: b.shape, binaries: binaries}
	for seed := range b.seeds {
		f.Seeds++
		for _, c := range b.classes {
			r, _, err := h.run(ctx, task{c, uint64(seed) + 1})
			if err != nil {
				return f, errors.Join(err, h.end())
			}
			if r.failed() {
				f.Class, f.Finding, f.Seconds = c.name, r.findings[0], seconds(time.Since(begun))
				return f, h.end()
			}
		}
	}
	f.Seconds = seconds(time.Since(begun))
	return f, h.end()
}

// readPlanted reads what became of the planted bugs; none if nothing is kept.
func readPlanted(dir string) (all []found, err error) {
	text, err := os.ReadFile(filepath.Join(dir, plantedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("read the planted bugs: %w", err)
	}
	return all, nil
}

// keepPlanted writes what became of a planted bug, in place of what is kept of it.
func keepPlanted(dir string, f found) error {
	all, err := readPlanted(dir)
	if err != nil {
		return err
	}
	all = append(slices.DeleteFunc(all, func(old found) bool { return old.Bug == f.Bug }), f)
	slices.SortFunc(all, func(a, b found) int { return strings.Compare(a.Bug, b.Bug) })
	text, err := json.MarshalIndent(all, "", "  ")
	if err == nil {
		err = errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, plantedFile), append(text, '\n'), 0o644))
	}
	if err != nil {
		return fmt.Errorf("write the planted bugs: %w", err)
	}
	return nil
}
