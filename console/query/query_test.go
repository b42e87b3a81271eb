package query_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/console/query"
	"github.com/everpost/everpost/internal/webhook"
)

var now = time.Date(2026, time.November, 24, 12, 0, 0, 0, time.UTC)

var (
	event    = webhook.NewEventID()
	endpoint = webhook.NewEndpointID()
	delivery = webhook.DeliveryIDOf(event, endpoint)
	replay   = webhook.NewReplayID()
	key      = webhook.NewKeyID()
	entry    = webhook.NewAuditID()
)

func TestParse(t *testing.T) {
	t.Parallel()

	open := []webhook.State{webhook.StatePending, webhook.StateRetrying, webhook.StateHeld}
	for text, want := range map[string]query.Query{
		"":                                       {},
		" \t ":                                   {},
		event.String():                           {ID: event.String(), Kind: "event"},
		" " + delivery.String() + " ":            {ID: delivery.String(), Kind: "delivery"},
		endpoint.String():                        {ID: endpoint.String(), Kind: "endpoint"},
		replay.String():                          {ID: replay.String(), Kind: "replay"},
		key.String():                             {ID: key.String(), Kind: "key"},
		entry.String():                           {ID: entry.String(), Kind: "audit entry"},
		"tenant:acme " + key.String():            {ID: key.String(), Kind: "key", Tenant: "acme"},
		"order-1001":                             {Text: "order-1001"},
		"https://example.com/hook?a=b":           {Text: "https://example.com/hook?a=b"},
		"order:paid":                             {Text: "order:paid"},
		`"retrying"`:                             {Text: "retrying"},
		`"two words"`:                            {Text: "two words"},
		`a"b`:                                    {Text: `a"b`},
		"retrying":                               {States: []webhook.State{webhook.StateRetrying}},
		"open":                                   {States: open},
		"order.*":                                {Type: "order.*"},
		"http_503":                               {Reason: "http_503"},
		"max_attempts":                           {Reason: "max_attempts"},
		"delivered":                              {States: []webhook.State{webhook.StateDelivered}},
		"state:held,retrying":                    {States: []webhook.State{webhook.StateRetrying, webhook.StateHeld}},
		"state:open state:held":                  {States: open},
		"type:order.paid":                        {Type: "order.paid"},
		"STATUS:503":                             {Status: 503},
		"status:503 dead_lettered":               {Status: 503, States: []webhook.State{webhook.StateDeadLettered}},
		`reason:"fixed by hand"`:                 {Reason: "fixed by hand"},
		"external_id:retrying":                   {ExternalID: "retrying"},
		"url:https://example.com":                {URL: "https://example.com"},
		"since:2h until:90s":                     {Since: now.Add(-2 * time.Hour), Until: now.Add(-90 * time.Second)},
		"since:2026-11-20":                       {Since: time.Date(2026, time.November, 20, 0, 0, 0, 0, time.UTC)},
		"until:2026-11-20T10:30+01:00":           {Until: time.Date(2026, time.November, 20, 9, 30, 0, 0, time.UTC)},
		"since:2026-11-20T10:30:05Z":             {Since: time.Date(2026, time.November, 20, 10, 30, 5, 0, time.UTC)},
		"state:held " + endpoint.String():        {States: []webhook.State{webhook.StateHeld}, EndpointID: endpoint},
		"event:" + event.String():                {EventID: event},
		event.String() + " " + "since:7d":        {EventID: event, Since: now.Add(-7 * 24 * time.Hour)},
		"endpoint:" + endpoint.String():          {EndpointID: endpoint},
		event.String() + " " + endpoint.String(): {EventID: event, EndpointID: endpoint},
		"tenant:acme type:order.* state:retrying since:2h": {
			Tenant: "acme", Type: "order.*", States: []webhook.State{webhook.StateRetrying}, Since: now.Add(-2 * time.Hour),
		},
	} {
		got, problems := query.Parse(text, now)
		require.Empty(t, problems, "%q", text)
		require.Equal(t, want, got, "%q", text)
		require.Equal(t, strings.TrimSpace(text) == "", got.Empty(), "%q", text)
	}
}

// A problem names the part of the search that it is about.
func TestProblems(t *testing.T) {
	t.Parallel()

	for text, want := range map[string][2]string{
		"state:gone":                           {"state:gone", "is not a state"},
		"since:2h state:held,":                 {"state:held,", "is not a state"},
		"state:":                               {"state:", "needs a value: state:retrying"},
		"status:99":                            {"status:99", "is not a status code"},
		"type:order.*.paid":                    {"type:order.*.paid", "is not an event type"},
		"order*":                               {"order*", "is not an event type"},
		"since:soon":                           {"since:soon", "is not a time"},
		"since:0h":                             {"since:0h", "is not a time"},
		"since:99999w":                         {"since:99999w", "is not a time"},
		"since:2h since:3h":                    {"since:3h", "is given twice"},
		"http_503 reason:http_500":             {"reason:http_500", "is given twice"},
		"since:1h until:2h":                    {"until:2h", "must be later than since"},
		"state:retrying reason:http_503":       {"reason:http_503", "finds dead letters only"},
		"held status:503":                      {"status:503", "finds dead letters only"},
		"held http_503":                        {"http_503", "finds dead letters only"},
		`url:"example`:                         {`url:"example`, `the closing " is missing`},
		"one two":                              {"two", "is a second word"},
		`""`:                                   {`""`, "is empty"},
		"stat:held":                            {"stat:held", "did you mean state:?"},
		"tenat:acme":                           {"tenat:acme", "did you mean tenant:?"},
		"evt_0123456789":                       {"evt_0123456789", "is not a complete id"},
		"event:evt_1":                          {"event:evt_1", "is not an id of the form evt_…"},
		delivery.String() + " held":            {delivery.String(), "already identifies one delivery"},
		event.String() + " " + event.String():  {event.String(), "is a second id"},
		endpoint.String() + " " + key.String(): {key.String(), "is a second id"},
		strings.Repeat("a", query.MaxLength) + "b": {"b", "too long"},
	} {
		_, problems := query.Parse(text, now)
		require.Len(t, problems, 1, "%q", text)
		require.Equal(t, want[0], problems[0].Cut(text), "%q", text)
		require.Contains(t, problems[0].Message, want[1], "%q", text)
	}

	_, problems := query.Parse("status:1 state:gone", now)
	require.Len(t, problems, 2)
	require.Less(t, problems[0].From, problems[1].From, "in the order of the text")
}

func TestSuggest(t *testing.T) {
	t.Parallel()

	v := query.Vocabulary{Tenants: []string{"acme", "globex"}, Types: []string{"order.paid", "order.shipped", "user.created"}, Hosts: []string{"example.com"}}
	for text, want := range map[string][]string{
		"sta":                    {"state:", "status:"},
		"ret":                    {"state:retrying", "reason:retry_after_past_give_up", "reason:retention"},
		"state:d":                {"state:delivered", "state:dead_lettered", "state:discarded"},
		"state:held type:order.": {"state:held type:order.paid", "state:held type:order.shipped"},
		"ORDER.P":                {"type:order.paid"},
		"ex":                     {"external_id:", "url:example.com"},
		"tenant:":                {"tenant:acme", "tenant:globex"},
		"since:2":                {"since:2h", "since:24h"},
		"zzz":                    {},
		`"or`:                    {},
		"event:":                 {},
	} {
		got := query.Suggest(text, v)
		require.Equal(t, want, got, "%q", text)
	}
	begin := query.Suggest("", v)
	require.Len(t, begin, query.MaxSuggestions)
	require.Equal(t, "state:open", begin[0])
	after := query.Suggest("type:order.paid ", v)
	require.Equal(t, "type:order.paid state:open", after[0])
	require.Equal(t, []string{}, query.Suggest(strings.Repeat("a", query.MaxLength+1), v))
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"", "tenant:acme type:order.* state:retrying since:2h", `url:"a b" x`, "state:", event.String() + " held", "\"", "ä:ö"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		q, problems := query.Parse(text, now)
		last := 0
		for _, p := range problems {
			require.True(t, last <= p.From && p.From < p.To && p.To <= len(text), "%d to %d of %d", p.From, p.To, len(text))
			require.NotEmpty(t, p.Message)
			require.True(t, utf8.ValidString(p.Cut(text)))
			last = p.From
		}
		if q.ID != "" {
			rest := q
			rest.ID, rest.Kind = "", ""
			require.True(t, rest.Empty(), "an id stands alone")
		}
		if len(problems) == 0 && !q.Since.IsZero() && !q.Until.IsZero() {
			require.True(t, q.Since.Before(q.Until))
		}
		suggested := query.Suggest(text, query.Vocabulary{Types: []string{"order.paid"}})
		require.LessOrEqual(t, len(suggested), query.MaxSuggestions)
		require.Equal(t, suggested, query.Suggest(text, query.Vocabulary{Types: []string{"order.paid"}}))
		for _, s := range suggested {
			require.NotEmpty(t, s)
		}
	})
}
