package console

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"

	"github.com/everpost/everpost/client"
)

const (
	overviewUnhealthy = 10
	overviewCounted   = 100 // unhealthy endpoints that are counted
	overviewWaiting   = 100 // open deliveries that are looked at
)

// overviewView is the start page of a tenant.
type overviewView struct {
	Stats     *charts
	Unhealthy client.Page[client.EndpointCondition]
	Others    int  // unhealthy endpoints that are counted and not in Unhealthy
	Endpoints bool // there is one
	Waiting   []waitingGroup
	Grouped   int // deliveries in Waiting
	More      bool
	Example   string
}

// waitingGroup is a number of deliveries that wait for the same reason.
type waitingGroup struct {
	State   client.DeliveryState
	Why     string
	Over    bool // Why no longer holds: the endpoint is active again, and the deliveries are being released
	Count   int
	Next    client.Time
	Example client.Delivery
}

func overview(p *page) error {
	v := overviewView{}
	if err := p.get(&v.Unhealthy, url.Values{"trouble": {"true"}, "limit": {strconv.Itoa(overviewCounted)}}, "endpoint-conditions"); err != nil {
		return err
	}
	v.Endpoints = len(v.Unhealthy.Data) > 0
	stopped := stoppedAmong(v.Unhealthy)
	v.Others = max(len(v.Unhealthy.Data)-overviewUnhealthy, 0)
	v.Unhealthy.Data = v.Unhealthy.Data[:len(v.Unhealthy.Data)-v.Others]
	if !v.Endpoints {
		var first client.Page[client.EndpointCondition]
		if err := p.get(&first, url.Values{"limit": {"1"}}, "endpoint-conditions"); err != nil {
			return err
		}
		v.Endpoints = len(first.Data) > 0
	}
	var err error
	if v.Stats, err = statsOf(p, p.path("stats"), "", rangeOf(p, "1h")); err != nil {
		return err
	}
	var open client.Page[client.Delivery]
	query := url.Values{"state": {"pending", "retrying", "held"}, "limit": {strconv.Itoa(overviewWaiting)}}
	if err := p.get(&open, query, "deliveries"); err != nil {
		return err
	}
	v.Waiting, v.Grouped, v.More = groupWaiting(open.Data, stopped), len(open.Data), open.NextCursor != ""
	v.Example = firstEvent(p)
	return p.show(view{Template: "overview", Title: "Overview", Entry: "Overview", Live: true, Data: v})
}

// stoppedAmong returns what reports whether an endpoint is paused or disabled. All are if there are more unhealthy endpoints than were read.
func stoppedAmong(unhealthy client.Page[client.EndpointCondition]) func(id string) bool {
	return func(id string) bool {
		return unhealthy.NextCursor != "" || slices.ContainsFunc(unhealthy.Data, func(e client.EndpointCondition) bool {
			return e.EndpointID == id && e.State != client.EndpointActive
		})
	}
}

// groupWaiting groups open deliveries by why they wait, the largest group first.
func groupWaiting(open []client.Delivery, stopped func(id string) bool) []waitingGroup {
	var groups []waitingGroup
	for _, d := range open {
		why := value(d.Reason)
		if why == "" && d.LastOutcome != nil {
			why = d.LastOutcome.Reason
		}
		over := stoppedFor(why) && !stopped(d.EndpointID)
		i := slices.IndexFunc(groups, func(g waitingGroup) bool { return g.State == d.State && g.Why == why && g.Over == over })
		if i < 0 {
			i = len(groups)
			groups = append(groups, waitingGroup{State: d.State, Why: why, Over: over, Example: d})
		}
		g := &groups[i]
		g.Count++
		if at := d.NextAttemptAt; !at.IsZero() && (g.Next.IsZero() || at.Before(g.Next.Time)) {
			g.Next = at
		}
	}
	slices.SortStableFunc(groups, func(a, b waitingGroup) int { return cmp.Compare(b.Count, a.Count) })
	return groups
}
