package cli

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/internal/printable"
	"github.com/everpost/everpost/internal/webhook"
)

// ReplaysCommand manages replays of many deliveries.
type ReplaysCommand struct {
	Create  ReplaysCreateCommand  `cmd:"" help:"Start a replay."`
	List    ReplaysListCommand    `cmd:"" help:"List replays."`
	Get     ReplaysGetCommand     `cmd:"" help:"Show a replay and its progress."`
	Pause   ReplaysPauseCommand   `cmd:"" help:"Pause a replay."`
	Resume  ReplaysResumeCommand  `cmd:"" help:"Resume a paused replay."`
	Cancel  ReplaysCancelCommand  `cmd:"" help:"Cancel a replay; deliveries that it has released continue."`
	SetRate ReplaysSetRateCommand `cmd:"" help:"Change how many deliveries a replay releases per minute."`
}

// pace is the rate of a replay.
type pace struct {
	Rate float64 `help:"Deliveries released per minute; Everpost's default is 100." name:"rate-per-minute" placeholder:"N"`
	Ramp bool    `default:"true" help:"Increase the rate while released deliveries succeed, decrease it while they fail." negatable:""`
}

// ReplaysCreateCommand starts a replay.
type ReplaysCreateCommand struct {
	remote          `embed:""`
	deliveryFilters `embed:""`
	pace            `embed:""`

	All    bool   `help:"All of the tenant's: required without a filter."`
	Source string `default:"dead_letters" enum:"dead_letters,events" help:"What to send: dead_letters or events (since a time, of types that an endpoint subscribes to, or sent to it by name)." placeholder:"SOURCE"` //nolint:lll // a struct tag cannot be wrapped
	Reason string `help:"Only dead letters with this reason." placeholder:"REASON"`

	IncludeUnmatched bool `help:"With --source=events: also types that the endpoint does not subscribe to; never events sent to other endpoints by name."`
}

// Run starts it.
func (c *ReplaysCreateCommand) Run(ctx context.Context, p Process) error {
	filters := deadLetterFields(c.deliveryFilters, c.Reason, time.Now())
	narrow := false
	for _, value := range filters {
		narrow = narrow || value != ""
	}
	if !narrow && !c.All {
		return usage("replays create: say which: --endpoint, --event-type, --reason, --status, --since, --until, --ended-since or --ended-until, " +
			"or --all of the tenant's")
	}
	body := replayBody(c.Source, filters, c.pace)
	if c.IncludeUnmatched {
		body["include_unmatched"] = true
	}
	return c.startReplay(ctx, p, body)
}

// replayBody returns the body of a request for a replay of the deliveries that the filters
// select. The API supplies the defaults of omitted fields.
func replayBody(source string, filters map[string]string, at pace) map[string]any {
	body := map[string]any{"source": source}
	for name, value := range filters {
		body[name] = value
	}
	if status, err := strconv.Atoi(filters["status"]); err == nil {
		body["status"] = status
	}
	if at.Rate != 0 {
		body["rate_per_minute"] = at.Rate
	}
	if !at.Ramp {
		body["ramp"] = false
	}
	return body
}

// startReplay starts a replay.
func (r *remote) startReplay(ctx context.Context, p Process, body map[string]any) error {
	return r.once(ctx, p, request{method: http.MethodPost, path: []string{"replays"}, body: object(body)})
}

// counted formats a number that may be unknown.
func counted(n *int64) string {
	if n == nil {
		return "-"
	}
	return strconv.FormatInt(*n, 10)
}

// ReplaysListCommand lists replays.
type ReplaysListCommand struct {
	remote `embed:""`
	paging `embed:""`
}

// Run lists them.
func (c *ReplaysListCommand) Run(ctx context.Context, p Process) error {
	return listOf(ctx, p, c, "replays", request{path: []string{"replays"}}, c.paging, []column[client.Replay]{
		{"ID", func(r client.Replay) string { return r.ID }},
		{"STATE", func(r client.Replay) string { return string(r.State) }},
		{"TOTAL", func(r client.Replay) string { return counted(r.Total) }},
		{"RELEASED", func(r client.Replay) string { return strconv.FormatInt(r.Released, 10) }},
		{"DELIVERED", func(r client.Replay) string { return strconv.FormatInt(r.Delivered, 10) }},
		{"FAILED", func(r client.Replay) string { return strconv.FormatInt(r.Failed, 10) }},
		{"PER MINUTE", func(r client.Replay) string { return strconv.Itoa(r.CurrentRate) }},
		{"CREATED", func(r client.Replay) string { return optionalTime(r.CreatedAt) }},
		{"REASON", func(r client.Replay) string { return text(r.StateReason) }},
	})
}

// oneReplay holds the arguments of a command for one replay.
type oneReplay struct {
	remote `embed:""`

	ID webhook.ReplayID `arg:"" help:"The replay's id, rpl_..."`
}

// act makes a request about the replay. verb is the rest of its path, "" for none.
func (c *oneReplay) act(ctx context.Context, p Process, method, verb string, body []byte) error {
	path := []string{"replays", c.ID.String()}
	if verb != "" {
		path = append(path, verb)
	}
	return c.once(ctx, p, request{method: method, path: path, body: body})
}

// How long a command waits until the replay's workflow has executed it, and how often it
// polls.
const (
	commandPatience = 5 * time.Second
	commandPoll     = 100 * time.Millisecond
)

// await sends a command and shows the replay after the workflow has executed it. If that
// takes too long, it prints a notice instead.
func (c *oneReplay) await(ctx context.Context, p Process, verb string, wanted client.ReplayState) error {
	s, err := c.open(p)
	if err != nil {
		return err
	}
	defer s.close()
	path := []string{"replays", c.ID.String()}
	a, err := s.do(ctx, request{method: http.MethodPost, path: append(path, verb)})
	if err != nil {
		return err
	}
	patience, poll := time.NewTimer(commandPatience), time.NewTicker(commandPoll)
	defer patience.Stop()
	defer poll.Stop()
	for {
		r, err := decode[client.Replay](a)
		if err != nil {
			return err
		}
		queued := wanted == client.ReplayRunning && r.State == client.ReplayQueued
		if queued || r.State == wanted || r.State == client.ReplayCompleted || r.State == client.ReplayCancelled {
			return s.show(a)
		}
		select {
		case <-poll.C:
		case <-patience.C:
			words := append([]string{"everpost", "replays", "get", c.ID.String(), "--tenant", s.tenant}, s.flags...)
			_, _ = fmt.Fprintf(s.Stderr, "%s is stored; the replay is still %s; this shows when it is carried out: %s\n",
				verb, printable.Text(string(r.State)), commandLine(words))
			return s.show(a)
		case <-ctx.Done():
			return errInterrupted
		}
		if a, err = s.do(ctx, request{method: http.MethodGet, path: path}); err != nil {
			return err
		}
	}
}

// ReplaysGetCommand shows a replay.
type ReplaysGetCommand struct {
	oneReplay `embed:""`
}

// Run shows it.
func (c *ReplaysGetCommand) Run(ctx context.Context, p Process) error {
	return c.act(ctx, p, http.MethodGet, "", nil)
}

// ReplaysPauseCommand pauses a replay.
type ReplaysPauseCommand struct {
	oneReplay `embed:""`
}

// Run pauses it.
func (c *ReplaysPauseCommand) Run(ctx context.Context, p Process) error {
	return c.await(ctx, p, "pause", client.ReplayPaused)
}

// ReplaysResumeCommand resumes a replay.
type ReplaysResumeCommand struct {
	oneReplay `embed:""`
}

// Run resumes it.
func (c *ReplaysResumeCommand) Run(ctx context.Context, p Process) error {
	return c.await(ctx, p, "resume", client.ReplayRunning)
}

// ReplaysCancelCommand cancels a replay.
type ReplaysCancelCommand struct {
	oneReplay `embed:""`
}

// Run cancels it.
func (c *ReplaysCancelCommand) Run(ctx context.Context, p Process) error {
	return c.await(ctx, p, "cancel", client.ReplayCancelled)
}

// ReplaysSetRateCommand changes the rate of a replay.
type ReplaysSetRateCommand struct {
	oneReplay `embed:""`

	PerMinute float64 `arg:"" help:"Deliveries released per minute."`
}

// Run changes it.
func (c *ReplaysSetRateCommand) Run(ctx context.Context, p Process) error {
	return c.act(ctx, p, http.MethodPatch, "", marshal(map[string]any{"rate_per_minute": c.PerMinute}))
}
