package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// result is one run, a line of JSON.
type result struct {
	Class        string         `json:"class"`
	Shape        string         `json:"shape"`
	Seed         uint64         `json:"seed"`
	Commit       string         `json:"commit"`
	Acknowledged int            `json:"acknowledged"` // (event, endpoint) pairs
	Delivered    int            `json:"delivered"`
	Dead         int            `json:"dead,omitempty"`
	Cancelled    int            `json:"cancelled,omitempty"`
	Discarded    int            `json:"discarded,omitempty"`
	Lost         int            `json:"lost,omitempty"`
	Unexpected   int            `json:"unexpected,omitempty"`
	Duplicates   map[string]int `json:"duplicates,omitempty"` // by cause
	Missed       bool           `json:"missed,omitempty"`     // the fault did not happen
	Recovery     float64        `json:"recovery_seconds"`     // by which the latest attempt after the fault was late
	Seconds      float64        `json:"run_seconds"`

	findings []string
	latest   latest
	firsts   []time.Duration // how long after it was due each first attempt to a quick endpoint was made
}

func resultOf(r run, v *verdict, w window) result {
	return result{
		Class: r.class.name, Shape: r.in.shape.name, Seed: r.seed,
		Acknowledged: v.acknowledged, Delivered: v.delivered, Dead: v.dead, Cancelled: v.cancelled, Discarded: v.discarded,
		Lost: len(v.lost), Unexpected: len(v.unexpected), Duplicates: v.duplicates, Missed: w.missed,
		findings: append(prefixed("lost: ", v.lost), prefixed("unexpected: ", v.unexpected)...),
	}
}

func prefixed(prefix string, all []string) []string {
	texts := make([]string, len(all))
	for i, text := range all {
		texts[i] = prefix + text
	}
	return texts
}

func (r result) failed() bool { return r.Lost+r.Unexpected > 0 }

// seconds rounds to hundredths.
func seconds(d time.Duration) float64 {
	return float64(max(d, 0).Round(10*time.Millisecond)) / float64(time.Second)
}

// resultsExt is the extension of the files of results, of which each shape has one.
const resultsExt = ".jsonl"

// readResults reads all runs of a directory; none if there is no such directory.
func readResults(dir string) ([]result, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*"+resultsExt))
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	slices.Sort(names)
	var all []result
	for _, name := range names {
		file, err := os.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read results: %w", err)
		}
		lines := bufio.NewScanner(file)
		for lines.Scan() {
			var one result
			if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
				_ = file.Close()
				return nil, fmt.Errorf("read results in %s: %w", name, err)
			}
			all = append(all, one)
		}
		if err := errors.Join(lines.Err(), file.Close()); err != nil {
			return nil, fmt.Errorf("read results in %s: %w", name, err)
		}
	}
	return all, nil
}

// appendResult appends a run to the results of a directory.
func appendResult(dir string, r result) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the directory of results: %w", err)
	}
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("write a result: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(dir, r.Shape+resultsExt), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("write a result: %w", err)
	}
	_, err = file.Write(append(line, '\n'))
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write a result: %w", err)
	}
	return nil
}
