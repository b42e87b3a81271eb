package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/webhook"
)

const (
	soakEvery  = time.Minute // a fault, and a sample of what is used
	soakWarmUp = 4           // of so many parts of the samples, the first is left out: caches fill
	soakGrowth = 0.2         // more than that in an hour, for certain, is growth
	confidence = 1.96        // standard errors to each side of a slope: 95 %
)

// sample is what an installation uses at a moment, by name.
type sample struct {
	at     time.Duration // after the beginning
	values map[string]float64
}

// trend is how one of the values changed during a soak.
type trend struct {
	Name  string  `json:"name"`
	Mean  float64 `json:"mean"`
	Slope float64 `json:"slope_per_hour"`
	Error float64 `json:"slope_error"` // to each side, at 95 %
}

// grows reports whether the value certainly grows by more than is allowed.
func (t trend) grows() bool { return t.Slope-t.Error > soakGrowth*t.Mean }

func (t trend) verdict() string {
	if t.grows() {
		return "grows"
	}
	return "flat"
}

// soak is what a soak found: a file of JSON.
type soak struct {
	Shape   string  `json:"shape"`
	Commit  string  `json:"commit"`
	Minutes float64 `json:"minutes"`
	Runs    int     `json:"runs"`
	Failed  int     `json:"failed"`
	Trends  []trend `json:"trends"`
}

// soakFile is the file of a directory of results that a soak is written to.
const soakFile = "soak.json"

// readSoak reads the result of a soak; the zero value if there was none.
func readSoak(dir string) (s soak, err error) {
	text, err := os.ReadFile(filepath.Join(dir, soakFile))
	if errors.Is(err, fs.ErrNotExist) {
		return soak{}, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return soak{}, fmt.Errorf("read the result of the soak: %w", err)
	}
	return s, nil
}

// soak keeps an installation under load, with a fault a minute that ends no process, and checks that what it uses does not grow.
func (o options) soak(ctx context.Context, b binaries, s shape, length time.Duration, stdout io.Writer) (err error) {
	in, err := install(ctx, b, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.remove()) }()
	faults := slices.DeleteFunc(classes(), func(c class) bool { return !slices.Contains(c.shapes, s.name) || !c.keepsProcesses() })
	none := classes()[0]
	found := soak{Shape: s.name, Commit: o.commit}
	begun, written := time.Now(), int64(0)
	var samples []sample
	for seed := uint64(1); time.Since(begun) < length; {
		var latencies []time.Duration
		deliveries := 0
		c := faults[rand.IntN(len(faults))]
		for minute := time.Now(); time.Since(minute) < soakEvery; seed++ {
			from := in.logSize()
			r := run{class: c, seed: seed, in: in}
			result, err := r.do(ctx)
			if err != nil {
				return fmt.Errorf("%w\n%s", err, in.logFrom(from))
			}
			found.Runs++
			if result.failed() {
				found.Failed++
				fmt.Fprint(stdout, r.report(result), in.logFrom(from))
			}
			if err := in.discardDeadLetters(ctx, r.tenant()); err != nil {
				return err
			}
			if c.name == none.name {
				latencies = append(latencies, result.firsts...)
			}
			deliveries += result.Acknowledged
			c = none
		}
		at := sample{time.Since(begun), map[string]float64{"p99 of first attempts, ms": milliseconds(quantile(latencies, 0.99))}}
		position, err := in.measure(ctx, at.values)
		if err != nil {
			return err
		}
		if written > 0 {
			at.values["log of changes per delivery, KiB"] = float64(position-written) / 1024 / float64(deliveries)
		}
		written = position
		samples = append(samples, at)
		fmt.Fprintf(stdout, "%3.0f min, %d runs, %d failed, p99 %.0f ms\n", at.at.Minutes(), found.Runs, found.Failed, at.values["p99 of first attempts, ms"])
	}
	found.Minutes = math.Round(time.Since(begun).Minutes())
	found.Trends = trends(samples[len(samples)/soakWarmUp:])
	return found.keep(o.results, stdout)
}

// keepsProcesses reports whether a class ends no process of Everpost or Temporal.
func (c class) keepsProcesses() bool {
	return c.shortAndPlain() && !strings.HasPrefix(c.name, "kill-") && !strings.HasPrefix(c.name, "term-")
}

// discardDeadLetters ends the dead letters of a run, whose workflows would stay in the workers' caches until these are full: that would look
// like growth.
func (in *installation) discardDeadLetters(ctx context.Context, tenant string) error {
	conn, err := in.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, "select id from deliveries where tenant_id = $1 and state = 4", tenant)
	if err != nil {
		return fmt.Errorf("list dead letters: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[[16]byte])
	if err != nil {
		return fmt.Errorf("list dead letters: %w", err)
	}
	for _, id := range ids {
		path := []string{"tenants", tenant, "dead-letters", webhook.DeliveryID(id).String(), discard.String()}
		if _, err := in.apis[0].Do(ctx, client.Request{Method: http.MethodPost, Path: path}); err != nil {
			return fmt.Errorf("discard a dead letter: %w", err)
		}
	}
	return nil
}

// measure adds what the parts and the database use, and returns how much PostgreSQL has written to its log of changes.
func (in *installation) measure(ctx context.Context, values map[string]float64) (written int64, err error) {
	for _, p := range in.parts {
		id := p.process.Command.Process.Pid
		files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", id))
		if err != nil {
			return 0, fmt.Errorf("count the files of %s: %w", p.name, err)
		}
		memory, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", id))
		if err != nil {
			return 0, fmt.Errorf("read the memory of %s: %w", p.name, err)
		}
		pages, err := strconv.Atoi(strings.Fields(string(memory))[1]) // those that are resident
		if err != nil {
			return 0, fmt.Errorf("read the memory of %s: %w", p.name, err)
		}
		values["files of "+p.name] = float64(len(files))
		values["memory of "+p.name+", MiB"] = float64(pages*os.Getpagesize()) / (1 << 20)
		if p.address["admin"] != "" {
			if values["goroutines of "+p.name], err = p.metric(ctx, "go_goroutines"); err != nil {
				return 0, err
			}
		}
	}
	conn, err := in.dial(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Close(ctx)
	var outbox int64
	err = conn.QueryRow(ctx, "select pg_total_relation_size('outbox'), pg_current_wal_lsn() - '0/0'::pg_lsn").Scan(&outbox, &written)
	if err != nil {
		return 0, fmt.Errorf("measure the database: %w", err)
	}
	values["table outbox, KiB"] = float64(outbox) / 1024
	return written, nil
}

// trends fits a line to each value.
func trends(samples []sample) []trend {
	byName := map[string][][2]float64{}
	for _, s := range samples {
		for name, value := range s.values {
			byName[name] = append(byName[name], [2]float64{s.at.Hours(), value})
		}
	}
	all := make([]trend, 0, len(byName))
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		mean, slope, err := line(byName[name])
		all = append(all, trend{name, mean, slope, confidence * err})
	}
	return all
}

// line is the least-squares line through points: their mean height, the slope, and its standard error. With fewer than three points nothing is
// certain.
func line(points [][2]float64) (mean, slope, standardError float64) {
	n := float64(len(points))
	var x, y, xx, xy float64
	for _, p := range points {
		x, y = x+p[0]/n, y+p[1]/n
	}
	for _, p := range points {
		xx, xy = xx+(p[0]-x)*(p[0]-x), xy+(p[0]-x)*(p[1]-y)
	}
	if len(points) < 3 || xx == 0 {
		return y, 0, 0
	}
	slope = xy / xx
	var off float64
	for _, p := range points {
		d := p[1] - y - slope*(p[0]-x)
		off += d * d
	}
	return y, slope, math.Sqrt(off / (n - 2) / xx)
}

func quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[int(q*float64(len(all)-1))]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// keep writes the result, and fails if something failed or grows.
func (f *soak) keep(dir string, stdout io.Writer) error {
	var growing []string
	for _, t := range f.Trends {
		if t.grows() {
			growing = append(growing, t.Name)
		}
		fmt.Fprintf(stdout, "%-40s mean %10.1f, per hour %+10.1f ± %.1f: %s\n", t.Name, t.Mean, t.Slope, t.Error, t.verdict())
	}
	if dir != "" {
		text, err := json.MarshalIndent(f, "", "  ")
		if err == nil {
			err = errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, soakFile), append(text, '\n'), 0o644))
		}
		if err != nil {
			return fmt.Errorf("write the result of the soak: %w", err)
		}
	}
	if f.Failed > 0 {
		return errFailed
	}
	if len(growing) > 0 {
		return fmt.Errorf("this grows: %s", strings.Join(growing, ", "))
	}
	return nil
}
