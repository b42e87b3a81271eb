package notify_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/notify"
	"github.com/everpost/everpost/internal/webhook"
)

func now() time.Time { return time.Date(2026, 1, 31, 9, 30, 0, 0, time.UTC) }

func open(since time.Duration) []webhook.Observation {
	return []webhook.Observation{{Circuit: webhook.CircuitOpen, Since: now().Add(-since)}}
}

func TestNext(t *testing.T) {
	t.Parallel()
	rule := webhook.DefaultAutoDisable()
	told := func(last webhook.Told) webhook.EndpointTold {
		return webhook.EndpointTold{Last: last, At: now().Add(-time.Hour)}
	}
	for name, c := range map[string]struct {
		facts webhook.EndpointFacts
		tell  []webhook.Notice
		last  webhook.Told
	}{
		"nothing":            {},
		"half of ten failed": {webhook.EndpointFacts{First: 10, FirstFailed: 5}, []webhook.Notice{webhook.NoticeFailing}, webhook.ToldFailing},
		"less than half":     {facts: webhook.EndpointFacts{First: 11, FirstFailed: 5}},
		"too few":            {facts: webhook.EndpointFacts{First: 9, FirstFailed: 9}},
		"told already":       {webhook.EndpointFacts{First: 10, FirstFailed: 10, Told: told(webhook.ToldFailing)}, nil, webhook.ToldFailing},
		"a circuit open for ten minutes": {
			webhook.EndpointFacts{Observed: open(10 * time.Minute)}, []webhook.Notice{webhook.NoticeFailing}, webhook.ToldFailing,
		},
		"a circuit open for less": {facts: webhook.EndpointFacts{Observed: open(10*time.Minute - 1)}},
		"a closed circuit": {
			facts: webhook.EndpointFacts{Observed: []webhook.Observation{{Circuit: webhook.CircuitClosed, Since: now().Add(-time.Hour)}}},
		},
		"half of the streak": {
			webhook.EndpointFacts{AutoDisable: rule, Streak: 50}, []webhook.Notice{webhook.NoticeDisablingSoon}, webhook.ToldDisablingSoon,
		},
		"less than the streak": {facts: webhook.EndpointFacts{AutoDisable: rule, Streak: 49, Exhausted: 4}},
		"half of the given up": {
			webhook.EndpointFacts{AutoDisable: rule, Exhausted: 5}, []webhook.Notice{webhook.NoticeDisablingSoon}, webhook.ToldDisablingSoon,
		},
		"not disabled by itself": {facts: webhook.EndpointFacts{Streak: 5000, Exhausted: 5000}},
		"failing, then soon disabled": {
			webhook.EndpointFacts{AutoDisable: rule, Streak: 60, First: 60, FirstFailed: 60, Told: told(webhook.ToldFailing)},
			[]webhook.Notice{webhook.NoticeDisablingSoon}, webhook.ToldDisablingSoon,
		},
		"soon disabled, then only failing": {
			webhook.EndpointFacts{First: 60, FirstFailed: 60, Told: told(webhook.ToldDisablingSoon)}, nil, webhook.ToldDisablingSoon,
		},
		"recovered": {
			webhook.EndpointFacts{First: 10, FirstFailed: 2, DeliveredAt: now(), Told: told(webhook.ToldFailing)},
			[]webhook.Notice{webhook.NoticeRecovered}, webhook.ToldNothing,
		},
		"on the edge": {
			webhook.EndpointFacts{First: 10, FirstFailed: 4, DeliveredAt: now(), Told: told(webhook.ToldFailing)}, nil, webhook.ToldFailing,
		},
		"delivers again within ten minutes": {
			webhook.EndpointFacts{First: 10, DeliveredAt: now(), Told: webhook.EndpointTold{Last: webhook.ToldFailing, At: now().Add(-9 * time.Minute)}},
			nil, webhook.ToldFailing,
		},
		"delivered before it was told": {
			webhook.EndpointFacts{DeliveredAt: now().Add(-2 * time.Hour), Told: told(webhook.ToldFailing)}, nil, webhook.ToldFailing,
		},
		"half open": {
			webhook.EndpointFacts{
				DeliveredAt: now(), Told: told(webhook.ToldFailing), Observed: []webhook.Observation{{Circuit: webhook.CircuitHalfOpen, Since: now()}},
			}, nil, webhook.ToldFailing,
		},
		"nothing known since a resume": {webhook.EndpointFacts{Told: told(webhook.ToldResumed)}, nil, webhook.ToldResumed},
		"delivers after a resume": {
			webhook.EndpointFacts{DeliveredAt: now(), Told: told(webhook.ToldResumed)}, []webhook.Notice{webhook.NoticeRecovered}, webhook.ToldNothing,
		},
		"fails after a resume": {
			webhook.EndpointFacts{First: 10, FirstFailed: 10, Told: told(webhook.ToldResumed)}, []webhook.Notice{webhook.NoticeFailing}, webhook.ToldFailing,
		},
		"disabled": {
			webhook.EndpointFacts{State: webhook.EndpointDisabled, First: 10, FirstFailed: 10, Told: told(webhook.ToldDisabled)}, nil, webhook.ToldDisabled,
		},
		"paused while it failed": {
			webhook.EndpointFacts{State: webhook.EndpointPaused, First: 10, DeliveredAt: now(), Told: told(webhook.ToldFailing)}, nil, webhook.ToldFailing,
		},
	} {
		findings, next := notify.Next(&c.facts, now())
		var tell []webhook.Notice
		for _, f := range findings {
			tell = append(tell, f.Notice)
			require.NotEmpty(t, f.Why, name)
		}
		require.Equal(t, c.tell, tell, name)
		require.Equal(t, c.last, next.Last, name)
		if len(tell) == 0 {
			require.Equal(t, c.facts.Told, next, name)
			continue
		}
		c.facts.Told = next
		again, after := notify.Next(&c.facts, now())
		require.Empty(t, again, "%s: told twice", name)
		require.Equal(t, next, after, name)
	}
}

func TestHeldDeliveriesThatExpire(t *testing.T) {
	t.Parallel()
	facts := webhook.EndpointFacts{State: webhook.EndpointPaused, HeldUntil: now().Add(notify.ExpiresWithin + time.Second)}
	findings, next := notify.Next(&facts, now())
	require.Empty(t, findings)
	require.Equal(t, webhook.EndpointTold{}, next)

	findings, next = notify.Next(&facts, now().Add(time.Second))
	require.Equal(t, webhook.NoticeBacklogExpiring, findings[0].Notice)
	require.Contains(t, findings[0].Why, "resume it")
	require.Equal(t, now().Add(time.Second), next.Expiring)
	facts.Told = next
	findings, _ = notify.Next(&facts, now().Add(23*time.Hour))
	require.Empty(t, findings, "once a day")
	findings, _ = notify.Next(&facts, now().Add(25*time.Hour))
	require.Len(t, findings, 1)

	facts.HeldUntil, facts.State = time.Time{}, webhook.EndpointActive
	_, next = notify.Next(&facts, now().Add(time.Hour))
	require.Zero(t, next.Expiring, "and again after the next stop")
}

// Of an endpoint that takes its deliveries, but too few of them, the oldest has used up half of its time.
func TestABacklogThatExpires(t *testing.T) {
	t.Parallel()
	facts := webhook.EndpointFacts{State: webhook.EndpointActive, GiveUpAfter: 10 * time.Hour, HeldUntil: now().Add(5*time.Hour + time.Second)}
	findings, _ := notify.Next(&facts, now())
	require.Empty(t, findings)

	findings, next := notify.Next(&facts, now().Add(time.Second))
	require.Equal(t, webhook.NoticeBacklogExpiring, findings[0].Notice)
	require.Contains(t, findings[0].Why, "more slowly than they come")
	require.Equal(t, webhook.ToldNothing, next.Last)

	facts.Observed = []webhook.Observation{{Circuit: webhook.CircuitHalfOpen}}
	findings, _ = notify.Next(&facts, now().Add(time.Second))
	require.Empty(t, findings, "what is wrong with it is told otherwise")
}

func TestAfterChange(t *testing.T) {
	t.Parallel()
	all := []webhook.Told{webhook.ToldNothing, webhook.ToldFailing, webhook.ToldDisablingSoon, webhook.ToldDisabled, webhook.ToldResumed}
	for _, told := range all {
		tell, next := notify.AfterChange(told, webhook.EndpointDisabled)
		require.Equal(t, told != webhook.ToldDisabled, tell)
		require.Equal(t, webhook.ToldDisabled, next)

		tell, next = notify.AfterChange(told, webhook.EndpointActive)
		require.False(t, tell)
		if told == webhook.ToldDisabled {
			told = webhook.ToldResumed
		}
		require.Equal(t, told, next)

		tell, next = notify.AfterChange(told, webhook.EndpointPaused)
		require.False(t, tell)
		require.Equal(t, told, next)
	}
}
