package console

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"time"
)

func overviewRoutes() []route {
	return []route{{pattern: "GET /t/{tenant}/{$}", handle: overview}}
}

const (
	overviewSpan    = time.Hour
	overviewTrouble = 10
	overviewWaiting = 100 // open deliveries that are looked at
)

// overviewView is the start page of a tenant.
type overviewView struct {
	Stats     *charts
	Troubled  list[condition]
	Endpoints bool // there is one
	Waiting   []waitingGroup
	Looked    int
	More      bool
	Example   string
}

// waitingGroup is a number of deliveries that wait for the same reason.
type waitingGroup struct {
	State, Why string
	Count      int
	Next       time.Time
	Example    delivery
}

func overview(p *page) error {
	v := overviewView{}
	if err := p.get(&v.Troubled, url.Values{"trouble": {"true"}, "limit": {strconv.Itoa(overviewTrouble)}}, "endpoint-conditions"); err != nil {
		return err
	}
	v.Endpoints = len(v.Troubled.Data) > 0
	if !v.Endpoints {
		var first list[condition]
		if err := p.get(&first, url.Values{"limit": {"1"}}, "endpoint-conditions"); err != nil {
			return err
		}
		v.Endpoints = len(first.Data) > 0
	}
	var err error
	if v.Stats, err = p.statsOf(p.path("stats"), "", overviewSpan, "1m"); err != nil {
		return err
	}
	var open list[delivery]
	query := url.Values{"state": {"pending", "retrying", "held"}, "limit": {strconv.Itoa(overviewWaiting)}}
	if err := p.get(&open, query, "deliveries"); err != nil {
		return err
	}
	v.Waiting, v.Looked, v.More = groupWaiting(open.Data), len(open.Data), open.NextCursor != ""
	v.Example = p.firstEvent()
	return p.show(view{Template: "overview", Title: "Overview", Entry: "Overview", Live: true, Data: v})
}

// groupWaiting groups open deliveries by why they wait, the largest group first.
func groupWaiting(open []delivery) []waitingGroup {
	var groups []waitingGroup
	for _, d := range open {
		why := d.Reason
		if why == "" && d.LastOutcome != nil {
			why = d.LastOutcome.Reason
		}
		i := slices.IndexFunc(groups, func(g waitingGroup) bool { return g.State == d.State && g.Why == why })
		if i < 0 {
			i = len(groups)
			groups = append(groups, waitingGroup{State: d.State, Why: why, Example: d})
		}
		g := &groups[i]
		g.Count++
		if at := d.NextAttemptAt; !at.IsZero() && (g.Next.IsZero() || at.Before(g.Next)) {
			g.Next = at
		}
	}
	slices.SortStableFunc(groups, func(a, b waitingGroup) int { return cmp.Compare(b.Count, a.Count) })
	return groups
}

// firstEvent is a command line that posts an event.
func (p *page) firstEvent() string {
	return "curl -X POST " + p.console.base(p) + "/v1/tenants/" + p.tenant + "/events \\\n" +
		"  -H \"Authorization: Bearer $EVERPOST_KEY\" \\\n  -H 'Content-Type: application/json' \\\n" +
		"  -d '{\"type\":\"order.paid\",\"payload\":{\"order\":17}}'"
}

// base is the address of this installation for a browser, and so for the API.
func (s *Console) base(p *page) string {
	if s.config.URL != "" {
		return s.config.URL
	}
	if s.secure(p.r) {
		return "https://" + p.r.Host
	}
	return "http://" + p.r.Host
}

// overviewOfAllView is the start page of an operator.
type overviewOfAllView struct {
	Stats   *charts
	Tenants list[tenant]
	Next    string
}

// overviewOfAll shows an operator all tenants, to choose one.
func overviewOfAll(p *page) error {
	v := overviewOfAllView{}
	query := url.Values{"limit": {"100"}, "cursor": {p.r.URL.Query().Get("cursor")}}
	err := p.api.get(p.r.Context(), &v.Tenants, query, apiPath("tenants"))
	if err != nil {
		return err
	}
	v.Next = v.Tenants.NextCursor
	if v.Stats, err = p.statsOf(apiPath("stats"), "", overviewSpan, "1m"); err != nil {
		return err
	}
	return p.show(view{Template: "overview-all", Title: "Tenants of this installation", Data: v})
}
