package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/everpost/everpost/client"
)

// replayInput is the arguments of replay_dead_letters.
type replayInput struct {
	scope
	deadLetterFilters
	confirmation

	All  bool `json:"all,omitempty" jsonschema:"All dead letters of the tenant: required without a filter."`
	Rate int  `json:"rate_per_minute,omitempty" jsonschema:"Deliveries released per minute, 1 to 60000; 100 if absent. It rises while they succeed."`
}

func (s *Server) addReplayCommand() {
	add(s, tool{
		name: "replay_dead_letters", title: "Replay dead letters", hints: hints{destructive: true, sends: true},
		description: "Starts a replay of the dead letters that match, at a rate. It counts them first, and names the count in the confirmation. " +
			"list_replays shows the progress.",
	}, planReplay, startReplay)
}

// planReplay counts what would be sent.
func planReplay(ctx context.Context, c *call, in replayInput) (intent, error) {
	f, err := in.filter(time.Now())
	if err != nil {
		return intent{}, err
	}
	if f == (client.DeadLetterFilter{}) && !in.All {
		return intent{}, badArgument("all", "is required without a filter (endpoint_id, event_type, reason, status, since, until)")
	}
	count, err := countDeadLetters(ctx, c, f)
	switch {
	case err != nil:
		return intent{}, err
	case count.Count == 0:
		return intent{}, errors.New("no dead letters match: there is nothing to replay")
	case count.More:
		return intent{}, fmt.Errorf("%s match, which is too many to confirm here; narrow the filters, or use 'everpost replays create'", count.number())
	}
	groups := make([]string, 0, len(count.Groups))
	for _, g := range count.Groups {
		groups = append(groups, fmt.Sprintf("%d to %s, given up: %s%s", g.Count, g.EndpointID, g.why(), g.answered()))
	}
	const mostGroups = 5
	more := ""
	if len(groups) > mostGroups {
		groups, more = groups[:mostGroups], "; and others"
	}
	return intent{
		text: fmt.Sprintf("Send %s of tenant %s again, at %d per minute at first (%s%s)? Each receiver gets its events once more.",
			count.number(), c.tenant, in.perMinute(), strings.Join(groups, "; "), more),
		what: "the number of dead letters", expect: strconv.Itoa(count.Count), count: count.Count,
	}, nil
}

// perMinute is the rate at which the replay begins.
func (in replayInput) perMinute() int {
	const usual = 100 // the API's default
	if in.Rate == 0 {
		return usual
	}
	return in.Rate
}

func startReplay(ctx context.Context, c *call, in replayInput) (string, replay, error) {
	f, err := in.filter(time.Now())
	if err != nil {
		return "", replay{}, err
	}
	read, err := c.of.Replays.Create(ctx, client.ReplayInput{
		Source: client.ReplayDeadLetters, EndpointID: f.EndpointID, EventType: f.EventType, Reason: f.Reason, Status: f.Status,
		Since: f.Since, Until: f.Until, EndedSince: f.EndedSince, EndedUntil: f.EndedUntil,
		RatePerMinute: in.perMinute(),
	})
	if err != nil {
		return "", replay{}, err
	}
	r := showReplay(read)
	return "Started: " + r.line() + ".\n", r, nil
}
