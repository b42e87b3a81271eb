package webhook_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/everpost/everpost/internal/webhook"
)

func TestEventTypesAndFilters(t *testing.T) {
	t.Parallel()
	for in, want := range map[string][2]bool{ // valid as a type, valid as a filter
		"order":                         {true, true},
		"order.paid":                    {true, true},
		"a_1.b2.c":                      {true, true},
		"userCreated":                   {true, true},
		"invoice/paid":                  {true, true},
		"order-paid":                    {true, true},
		"com:acme:Order":                {true, true},
		"2fa.enabled":                   {true, true},
		"order.":                        {true, true},
		"order..paid":                   {true, true},
		"":                              {false, false},
		".order":                        {false, false},
		"_order":                        {false, false},
		"/order":                        {false, false},
		"order paid":                    {false, false},
		"order\npaid":                   {false, false},
		"order\x00":                     {false, false},
		"order%":                        {false, false},
		"bestätigt":                     {false, false},
		"order.*":                       {false, true},
		"invoice/*":                     {false, true},
		"order-*":                       {false, true},
		"user_*":                        {false, true},
		"com:acme:*":                    {false, true},
		"*":                             {false, true},
		"**":                            {false, false},
		"*.paid":                        {false, false},
		"order*":                        {false, false},
		"order.*.paid":                  {false, false},
		"order.**":                      {false, false},
		".*":                            {false, false},
		"/*":                            {false, false},
		"everpost.endpoint.paused":      {true, true},
		"everpost.*":                    {false, true},
		"everpost/x":                    {true, true},
		"Everpost.endpoint.paused":      {true, false},
		"EVERPOST.*":                    {false, false},
		"Everpost":                      {true, true},
		strings.Repeat("a", 128):        {true, true},
		strings.Repeat("a", 127) + ".*": {false, true},
		strings.Repeat("a", 128) + ".*": {false, false},
		strings.Repeat("a", 129):        {false, false},
	} {
		require.Equal(t, want[0], webhook.ValidType(in), "type %q", in)
		require.Equal(t, want[1], webhook.ValidFilter(in), "filter %q", in)
	}
}

func TestFilterMatches(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		filter, eventType string
		want              bool
	}{
		{"*", "order.paid", true},
		{"order.paid", "order.paid", true},
		{"order.paid", "order.paid.late", false},
		{"order.*", "order.paid", true},
		{"order.*", "order.paid.late", true},
		{"order.*", "order", false},
		{"order.*", "orders.paid", false},
		{"order", "order.paid", false},
		{"Order", "order", false},
		{"order_*", "order_paid", true},
		{"order_*", "order.paid", false},
		{"order-*", "order-paid", true},
		{"invoice/*", "invoice/paid/late", true},
		{"com:*", "com:acme", true},
		{"order*", "orders", false},
	} {
		require.Equal(t, c.want, webhook.FilterMatches(c.filter, c.eventType), "%s on %s", c.filter, c.eventType)
	}
}

// A type with the reserved prefix is reserved in any case.
func TestReservedTypes(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]bool{
		"everpost.": true, "everpost.endpoint.paused": true, "Everpost.x": true, "EVERPOST.x": true, "eVERPOST.": true,
		"everpost": false, "everpost/x": false, "everposted.x": false, "ever.post": false, "": false, "order.paid": false,
	} {
		require.Equal(t, want, webhook.ReservedType(in), in)
	}
}

func TestCommandsAreTakenWhereTheyMakeSense(t *testing.T) {
	t.Parallel()
	type row struct{ cancel, retry, retryScheduled, replay, discard bool }
	for state, want := range map[webhook.State]row{
		webhook.StatePending:      {cancel: true, retryScheduled: true},
		webhook.StateRetrying:     {cancel: true, retry: true, retryScheduled: true},
		webhook.StateHeld:         {cancel: true, retry: true, retryScheduled: true},
		webhook.StateDelivered:    {replay: true},
		webhook.StateDeadLettered: {replay: true, discard: true},
		webhook.StateCancelled:    {replay: true},
		webhook.StateDiscarded:    {replay: true},
	} {
		require.Equal(t, want, row{
			cancel:         webhook.CommandCancel.TakenIn(state, false),
			retry:          webhook.CommandRetry.TakenIn(state, false),
			retryScheduled: webhook.CommandRetry.TakenIn(state, true),
			replay:         webhook.CommandReplay.TakenIn(state, false),
			discard:        webhook.CommandDiscard.TakenIn(state, false),
		}, state)
	}
	require.Len(t, webhook.States(), 7)
}

// An index by filters finds exactly the filters that match.
func TestMatchingFilters(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"order.paid", "order.*", "*"}, webhook.MatchingFilters("order.paid"))
	require.Equal(t, []string{"everpost.endpoint.paused", "everpost.*", "everpost.endpoint.*"}, webhook.MatchingFilters("everpost.endpoint.paused"))
	part := rapid.StringMatching(`[ab][.:/_-]?`)
	rapid.Check(t, func(t *rapid.T) {
		text := func(name string) string { return strings.Join(rapid.SliceOfN(part, 1, 4).Draw(t, name), "") }
		eventType, filter := rapid.SampledFrom([]string{"", webhook.OperationalPrefix}).Draw(t, "prefix")+text("type"), text("filter")
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			filter = "*"
		case 1:
			filter += "*"
		case 2:
			filter = webhook.OperationalPrefix + filter
		}
		if !webhook.ValidFilter(filter) {
			t.Skip("is not a filter")
		}
		require.Equal(t, webhook.FilterMatches(filter, eventType), slices.Contains(webhook.MatchingFilters(eventType), filter), "%s %s", filter, eventType)
	})
}
