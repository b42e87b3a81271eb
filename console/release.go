package console

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/everpost/everpost/client"
	"github.com/everpost/everpost/console/chart"
)

// release is the release of an endpoint's held deliveries, on its page.
type release struct {
	client.Release

	Rate form
}

// Shown reports whether there is something to show: a release that a person has begun or stopped, and that is not over.
func (r *release) Shown() bool {
	return r.State != client.ReleaseDone && !r.StartedAt.IsZero() && (r.Total != nil || r.RatePerMinute != nil || r.State == client.ReleaseStopped)
}

// Stopped reports whether it can go on.
func (r *release) Stopped() bool { return r.State == client.ReleaseStopped }

// Rest is how many remain; 0 if that is not known.
func (r *release) Rest() int64 {
	if r.Remaining == nil {
		return 0
	}
	return *r.Remaining
}

// RestTime is how long the rest takes at the rate, in words; "" if that is not known.
func (r *release) RestTime() string {
	if r.State != client.ReleaseRunning || r.Rest() == 0 || r.RatePerMinute == nil {
		return ""
	}
	return chart.Span(time.Duration(float64(r.Rest()) / float64(*r.RatePerMinute) * float64(time.Minute)).Round(time.Second))
}

// releaseOf reads the release of an endpoint.
func releaseOf(p *page, id string) (*release, error) {
	r := &release{}
	if err := p.get(&r.Release, nil, "endpoints", id, "release"); err != nil {
		return nil, err
	}
	rate := ""
	if r.RatePerMinute != nil {
		rate = strconv.Itoa(*r.RatePerMinute)
	}
	r.Rate = newForm("rate_per_minute", rate)
	return r, nil
}

func stopRelease(p *page) error {
	return changeRelease(p, map[string]any{"state": client.ReleaseStopped}, "The release is stopped; deliveries of newer events are sent.")
}

func continueRelease(p *page) error {
	return changeRelease(p, map[string]any{"state": client.ReleaseRunning}, "The release goes on.")
}

func setReleaseRate(p *page) error {
	var rate any // null: Everpost's own pace
	if typed := number(strings.TrimSpace(p.typed.Get("rate_per_minute"))); typed != nil {
		rate = typed
	}
	return changeRelease(p, map[string]any{"rate_per_minute": rate}, "The rate of the release is changed.")
}

// changeRelease changes the release of the path's endpoint and goes back to it. A refusal is shown on a page of its own.
func changeRelease(p *page, change map[string]any, done string) error {
	back := p.to("endpoints", p.r.PathValue("id"))
	err := p.send(nil, http.MethodPatch, change, "endpoints", p.r.PathValue("id"), "release")
	if isStatus(err, http.StatusConflict) || isStatus(err, http.StatusBadRequest) {
		return p.ask("Change the release", "Endpoints", question{Question: "Nothing was changed.", Problem: sentence(problemOf(err).Detail), Back: back})
	}
	if err != nil {
		return err
	}
	return p.done(back, done)
}
