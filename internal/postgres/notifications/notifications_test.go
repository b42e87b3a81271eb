package notifications_test

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/postgres/audit"
	"github.com/everpost/everpost/internal/postgres/notifications"
	"github.com/everpost/everpost/internal/postgres/storetest"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

const slackURL = "https://hooks.slack.example/services/T0/B0/CanaryURLToken"

type bundle struct {
	*storetest.Bundle

	n *notifications.Notifications
}

func setup(t *testing.T) *bundle {
	t.Helper()
	b := storetest.Setup(t)
	return &bundle{b, b.Notifications}
}

func on(all ...webhook.Notice) (set webhook.Notices) {
	for _, n := range all {
		set = set.With(n)
	}
	return set
}

func everything() webhook.Notices { return on(webhook.AllNotices()...) }

func (b *bundle) put(t *testing.T, owner string, channels ...webhook.ChannelInput) []webhook.Channel {
	t.Helper()
	s, err := b.n.Put(t.Context(), storetest.TestActor(), owner, webhook.NotificationInput{Channels: channels, PortalURL: "https://app.example"})
	require.NoError(t, err)
	require.Equal(t, "https://app.example", s.PortalURL)
	return s.Channels
}

func (b *bundle) token(t *testing.T, id webhook.ChannelID) []byte {
	t.Helper()
	address := storetest.Query[string](t, b.Stores, `select address from notification_channels where id = $1`, [16]byte(id))[0]
	token, err := b.n.TokenOf(t.Context(), id, address)
	require.NoError(t, err)
	return token
}

// mail adds a channel of an address that is confirmed, and forgets the mail that asked for it.
func (b *bundle) mail(t *testing.T, owner, address string, notices webhook.Notices) webhook.Channel {
	t.Helper()
	c := b.put(t, owner, webhook.ChannelInput{Kind: webhook.ChannelEmail, Target: address, Notices: notices})[0]
	require.Equal(t, webhook.ChannelUnconfirmed, c.State)
	require.NoError(t, b.n.Confirm(t.Context(), b.token(t, c.ID)))
	require.Empty(t, b.take(t), "a confirmed channel is not asked again")
	return c
}

func (b *bundle) take(t *testing.T) []webhook.DueMail {
	t.Helper()
	mails, err := b.Mails.TakeMails(t.Context(), 100, time.Minute)
	require.NoError(t, err)
	return mails
}

func (b *bundle) tellChanges(t *testing.T) {
	t.Helper()
	_, err := b.n.TakeChanges(t.Context(), 100)
	require.NoError(t, err)
}

func (b *bundle) disable(t *testing.T) {
	t.Helper()
	_, err := b.CountFailures(t.Context(), []webhook.EndpointFailures{b.Refused(100)})
	require.NoError(t, err)
	why, err := b.DisableFailing(t.Context(), "acme", b.Subscriber.ID)
	require.NoError(t, err)
	require.NotEmpty(t, why)
}

func TestChannelsArePlannedByIDAndTarget(t *testing.T) {
	t.Parallel()
	b := setup(t)
	mail := webhook.ChannelInput{Kind: webhook.ChannelEmail, Target: "ops@example.com", Notices: on(webhook.NoticeFailing)}
	slack := webhook.ChannelInput{
		Kind: webhook.ChannelSlack, Target: slackURL, Notices: on(webhook.NoticeDisabled), EndpointIDs: []webhook.EndpointID{b.Subscriber.ID},
	}
	first := b.put(t, "acme", mail, slack)
	require.Equal(t, webhook.ChannelActive, first[1].State)
	require.Equal(t, []webhook.EndpointID{b.Subscriber.ID}, first[1].EndpointIDs)
	require.NoError(t, b.n.Confirm(t.Context(), b.token(t, first[0].ID)))

	mail.Target, mail.Notices = "OPS@example.com", everything()
	again := b.put(t, "acme", slack, mail)
	require.Equal(t, []webhook.ChannelID{first[1].ID, first[0].ID}, []webhook.ChannelID{again[0].ID, again[1].ID}, "the same targets")
	require.Equal(t, webhook.ChannelActive, again[1].State)
	require.Equal(t, everything(), again[1].Notices)
	require.Equal(t, 1, b.CountOf(t, `endpoints where internal and deleted_at is null`))

	kept := b.put(t, "acme", webhook.ChannelInput{ID: first[1].ID, Kind: webhook.ChannelSlack, Notices: everything()})
	require.Equal(t, first[1].ID, kept[0].ID)
	require.Zero(t, b.CountOf(t, `notification_channels where kind = 0`))

	other := b.put(t, "acme", webhook.ChannelInput{ID: first[1].ID, Kind: webhook.ChannelSlack, Target: slackURL + "2", Notices: everything()})
	require.Equal(t, first[1].ID, other[0].ID)
	require.Equal(t, 1, b.CountOf(t, `endpoints where internal and deleted_at is null`))
	require.Equal(t, 1, b.CountOf(t, `endpoints where internal and deleted_at is not null`))

	for field, c := range map[string]webhook.ChannelInput{
		"channels[0].id":     {ID: webhook.NewChannelID(), Kind: webhook.ChannelSlack, Target: slackURL},
		"channels[0].kind":   {ID: first[1].ID, Kind: webhook.ChannelTeams},
		"channels[0].target": {Kind: webhook.ChannelTeams},
	} {
		_, err := b.n.Put(t.Context(), storetest.TestActor(), "acme", webhook.NotificationInput{Channels: []webhook.ChannelInput{c}})
		require.Equal(t, webhook.CodeInvalid, webhook.CodeOf(err), field)
		require.Contains(t, fmt.Sprint(err), field)
	}
	mine := webhook.ChannelInput{ID: first[1].ID, Kind: webhook.ChannelSlack, Notices: everything()}
	mine.Target, slack.Target = slackURL+"2", slackURL+"2"
	for _, kept := range []string{mine.Target, ""} { // the stored target counts, too
		mine.Target = kept
		_, err := b.n.Put(t.Context(), storetest.TestActor(), "acme", webhook.NotificationInput{Channels: []webhook.ChannelInput{mine, slack}})
		require.ErrorContains(t, err, "channels[1].target")
	}
	_, err := b.n.Settings(t.Context(), "nobody")
	require.Equal(t, webhook.CodeNotFound, webhook.CodeOf(err))
	_, err = b.n.Put(t.Context(), storetest.TestActor(), "", webhook.NotificationInput{Channels: []webhook.ChannelInput{slack}})
	require.Equal(t, webhook.CodeInvalid, webhook.CodeOf(err), "there is no operator tenant")
}

// A chat's URL is stored encrypted only, its endpoint is hidden from the tenant and from its limits, and only workers see the URL.
func TestChatsAreHiddenEndpoints(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(t, "acme", webhook.ChannelInput{Kind: webhook.ChannelSlack, Target: slackURL, Notices: everything()})
	for _, table := range []string{"endpoints", "notification_channels", "notification_settings", "audit_log"} {
		require.Empty(t, storetest.Query[string](t, b.Stores, `select t::text from `+table+` t where t::text like '%CanaryURLToken%'`), table)
	}
	id := webhook.EndpointID(storetest.Query[[16]byte](t, b.Stores, `select id from endpoints where internal`)[0])
	target, err := b.Target(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, slackURL, target.URL)
	require.Equal(t, "https://hooks.slack.example", storetest.Query[string](t, b.Stores, `select url from endpoints where internal`)[0])

	list, err := b.ListEndpoints(t.Context(), "acme", webhook.Page{Limit: 10})
	require.NoError(t, err)
	require.Len(t, list, 1)
	actor := storetest.TestActor()
	nothing := func(*webhook.Endpoint) error { return nil }
	for name, call := range map[string]func() error{
		"get":    func() error { _, err := b.Endpoint(t.Context(), "acme", id); return err },
		"test":   func() error { _, err := b.TargetOf(t.Context(), "acme", id); return err },
		"secret": func() error { _, err := b.EndpointSecret(t.Context(), actor, "acme", id); return err },
		"update": func() error { _, err := b.UpdateEndpoint(t.Context(), actor, "acme", id, nothing); return err },
		"pause":  func() error { _, err := b.PauseEndpoint(t.Context(), actor, "acme", id, ""); return err },
		"resume": func() error { _, _, err := b.ResumeEndpoint(t.Context(), actor, "acme", id, 0, ""); return err },
		"delete": func() error { return b.DeleteEndpoint(t.Context(), actor, "acme", id) },
		"rotate": func() error {
			_, err := b.RotateSecret(t.Context(), actor, "acme", id, webhook.Rotation{})
			return err
		},
		"health": func() error { _, _, err := b.Health(t.Context(), "acme", id, ""); return err },
	} {
		require.Equal(t, webhook.CodeNotFound, webhook.CodeOf(call()), name)
	}
	event := storetest.NewEvent("order.paid")
	event.EndpointIDs = []webhook.EndpointID{id}
	_, err = b.Accept(t.Context(), event)
	require.Equal(t, webhook.CodeInvalid, webhook.CodeOf(err))
	accepted, err := b.Accept(t.Context(), storetest.NewEvent("order.paid"))
	require.NoError(t, err)
	require.Len(t, accepted.Deliveries, 1)

	failed := b.Refused(1000)
	failed.EndpointID = id
	left, err := b.CountFailures(t.Context(), []webhook.EndpointFailures{failed})
	require.NoError(t, err)
	require.Empty(t, left, "it is never disabled")

	require.NoError(t, b.DeleteEndpoint(t.Context(), actor, "acme", b.Subscriber.ID))
	require.NoError(t, b.DeleteTenant(t.Context(), actor, "acme"), "it does not keep the tenant")
	require.Zero(t, b.Count(t, "notification_channels"))
}

// A disabled endpoint is told once to each channel that asks for it, and again only after it was resumed.
func TestDisabledIsToldOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.mail(t, "acme", "ops@example.com", on(webhook.NoticeDisabled))
	b.mail(t, "", "operator@example.com", everything())
	b.put(t, "acme",
		webhook.ChannelInput{ID: c.ID, Kind: webhook.ChannelEmail, Notices: on(webhook.NoticeDisabled)},
		webhook.ChannelInput{Kind: webhook.ChannelEmail, Target: "unconfirmed@example.com", Notices: everything()},
		webhook.ChannelInput{Kind: webhook.ChannelSlack, Target: slackURL, Notices: on(webhook.NoticeDisabled)},
		webhook.ChannelInput{Kind: webhook.ChannelDiscord, Target: slackURL, Notices: on(webhook.NoticeFailing)},
		webhook.ChannelInput{Kind: webhook.ChannelTeams, Target: slackURL, Notices: everything(), EndpointIDs: []webhook.EndpointID{webhook.NewEndpointID()}})
	b.disable(t)
	require.Equal(t, 1, b.Count(t, "notification_changes"), "in the transaction of the change")
	b.tellChanges(t)
	require.Zero(t, b.Count(t, "notification_changes"))
	var told []string
	for _, m := range b.take(t) {
		if m.Notification != nil {
			require.Equal(t, webhook.NoticeDisabled, m.Notification.Notice)
			require.Contains(t, m.Notification.Summary, "100 requests in a row were refused permanently")
			require.Equal(t, "https://example.com/hook", m.Notification.URL)
			told = append(told, m.Address)
		}
	}
	require.ElementsMatch(t, []string{"ops@example.com", "operator@example.com"}, told)
	require.Equal(t, []string{webhook.NotificationType}, storetest.Query[string](t, b.Stores, `select type from events`))
	require.Equal(t, 1, b.CountOf(t, `outbox o join notification_channels c on c.endpoint_id = o.endpoint_id and c.kind = 1`))
	require.Contains(t, string(storetest.Query[[]byte](t, b.Stores, `select payload from events`)[0]), `"text":"A webhook endpoint was disabled\n`)

	_, _, err := b.ResumeEndpoint(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID, 0, "")
	require.NoError(t, err)
	b.tellChanges(t)
	require.Equal(t, 1, b.Count(t, "events"), "a resume is no notification")
	b.disable(t)
	b.tellChanges(t)
	require.Equal(t, 2, b.Count(t, "events"), "another outage is another one")
}

// look looks at all endpoints.
func (b *bundle) look(t *testing.T) map[webhook.EndpointID]webhook.EndpointFacts {
	t.Helper()
	found, next, err := b.n.Look(t.Context(), webhook.EndpointID{})
	require.NoError(t, err)
	require.True(t, next.IsZero())
	all := map[webhook.EndpointID]webhook.EndpointFacts{}
	for _, c := range found {
		all[c.ID] = c
	}
	return all
}

func TestLook(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.EnsurePartitions(t.Context(), time.Now()))
	require.Empty(t, b.look(t), "a healthy endpoint is not looked at")

	counts := webhook.Counts{FirstAttempts: 12, FirstDelivered: 3}
	counts.Attempts[webhook.ClassDelivered] = 3
	minute := time.Now().UTC().Truncate(time.Minute)
	require.NoError(t, b.AddStatistics(t.Context(), webhook.StatisticsFlush{Writer: [16]byte{1}, Seq: 1, Rows: []webhook.StatisticsRow{
		{TenantID: "acme", EndpointID: b.Subscriber.ID, Minute: minute, Counts: counts},
	}}))
	for _, seen := range []webhook.EndpointFailures{b.Refused(60), b.Exhausted(3, time.Now())} {
		_, err := b.CountFailures(t.Context(), []webhook.EndpointFailures{seen})
		require.NoError(t, err)
	}
	require.NoError(t, b.WriteObservations(t.Context(), "w", map[webhook.EndpointID]webhook.Observation{
		b.Subscriber.ID: {Circuit: webhook.CircuitOpen, Since: minute},
	}))
	seen := b.look(t)[b.Subscriber.ID]
	require.Equal(t, "acme", seen.TenantID)
	require.Equal(t, []any{12, 9, 60, 3}, []any{seen.First, seen.FirstFailed, seen.Streak, seen.Exhausted})
	require.Equal(t, minute.Add(time.Minute), seen.DeliveredAt.UTC())
	require.Equal(t, webhook.CircuitOpen, seen.Observed[0].Circuit)
	require.Equal(t, webhook.DefaultAutoDisable(), seen.AutoDisable)
	require.True(t, seen.HeldUntil.IsZero())

	next := webhook.EndpointTold{Last: webhook.ToldFailing, At: time.Now().UTC().Truncate(time.Microsecond)}
	told, err := b.n.Tell(t.Context(), nil, b.Subscriber.ID, seen.Told, next)
	require.NoError(t, err)
	require.True(t, told)
	require.Equal(t, next.Last, b.look(t)[b.Subscriber.ID].Told.Last)
	told, err = b.n.Tell(t.Context(), nil, b.Subscriber.ID, seen.Told, next)
	require.NoError(t, err)
	require.False(t, told, "another process was faster")

	_, err = b.PauseEndpoint(t.Context(), storetest.TestActor(), "acme", b.Subscriber.ID, "")
	require.NoError(t, err)
	start := b.AcceptOne(t)
	b.EndIn(t, start, webhook.StateHeld)
	require.WithinDuration(t, start.GiveUpAt, b.look(t)[b.Subscriber.ID].HeldUntil, time.Second)
}

func TestDigests(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.mail(t, "acme", "ops@example.com", on(webhook.NoticeDeadLetters))
	digest := func() []webhook.DueMail {
		b.Exec(t, `update notification_settings set digest_at = now() - interval '3 days'`)
		n, err := b.n.SendDigests(t.Context(), 10)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		n, err = b.n.SendDigests(t.Context(), 10)
		require.NoError(t, err)
		require.Zero(t, n, "once a day")
		return b.take(t)
	}
	require.Empty(t, digest(), "nothing was given up")
	for range 2 {
		b.EndIn(t, b.AcceptOne(t), webhook.StateDeadLettered)
	}
	mails := digest()
	require.Len(t, mails, 1)
	require.Equal(t, webhook.NoticeDeadLetters, mails[0].Notification.Notice)
	require.Contains(t, mails[0].Notification.Summary, "2 deliveries to 1 endpoint were given up within 24 hours")
}

func TestMailsAreTakenOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.mail(t, "acme", "ops@example.com", everything())
	b.disable(t)
	b.tellChanges(t)
	mails := b.take(t)
	require.Len(t, mails, 1)
	require.Empty(t, b.take(t), "it is another process's")

	require.NoError(t, b.Mails.MailFailed(t.Context(), &mails[0], "the mail server did not answer in time", 0))
	again := b.take(t)
	require.Len(t, again, 1)
	require.Equal(t, 1, again[0].Attempts)
	s, err := b.n.Settings(t.Context(), "acme")
	require.NoError(t, err)
	require.Equal(t, "the mail server did not answer in time", s.Channels[0].LastError)
	require.NoError(t, b.Mails.MailSent(t.Context(), &webhook.DueMail{Channel: c.ID}))
	s, err = b.n.Settings(t.Context(), "acme")
	require.NoError(t, err)
	require.True(t, s.Channels[0].LastToldAt.IsZero(), "a mail that asks for confirmation tells nothing")
	require.NoError(t, b.Mails.MailSent(t.Context(), &again[0]))
	require.Zero(t, b.Count(t, "notification_mails"))
	s, err = b.n.Settings(t.Context(), "acme")
	require.NoError(t, err)
	require.False(t, s.Channels[0].LastToldAt.IsZero())

	for n := range webhook.MaxRefusals {
		s, err = b.n.Settings(t.Context(), "acme")
		require.NoError(t, err)
		require.Equal(t, webhook.ChannelActive, s.Channels[0].State, n)
		require.NoError(t, b.Mails.MailRefused(t.Context(), &webhook.DueMail{Channel: c.ID}, "the mail server refuses the recipient with 550"))
	}
	s, err = b.n.Settings(t.Context(), "acme")
	require.NoError(t, err)
	require.Equal(t, webhook.ChannelBouncing, s.Channels[0].State)
}

// One confirmation an hour goes to an address, of whatever tenant, and ten a day to those of a tenant.
func TestConfirmationsAreLimited(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, _, err := b.PutTenant(t.Context(), storetest.TestActor(), webhook.Tenant{ID: "other"})
	require.NoError(t, err)
	one := webhook.ChannelInput{Kind: webhook.ChannelEmail, Target: "victim@example.com", Notices: everything()}
	b.put(t, "acme", one)
	mails := b.take(t)
	require.Len(t, mails, 1)
	require.Nil(t, mails[0].Notification)
	require.NoError(t, b.Mails.MailSent(t.Context(), &mails[0]))
	one.Target = "VICTIM@example.com"
	b.put(t, "other", one)
	require.Empty(t, b.take(t), "another tenant waits")
	b.put(t, "acme", one)
	b.put(t, "acme")
	b.put(t, "acme", one)
	require.Empty(t, b.take(t), "and so does a channel that is added again")
	b.Exec(t, `update notification_confirmations set sent_at = sent_at - interval '61 minutes'`)
	b.Exec(t, `update notification_mails set next_at = now()`)
	require.Len(t, b.take(t), 1, "one of the two")

	var many []webhook.ChannelInput
	for i := range 12 {
		many = append(many, webhook.ChannelInput{Kind: webhook.ChannelEmail, Target: fmt.Sprintf("n%d@example.com", i), Notices: everything()})
	}
	_, _, err = b.PutTenant(t.Context(), storetest.TestActor(), webhook.Tenant{ID: "third"})
	require.NoError(t, err)
	b.put(t, "third", many...)
	require.Len(t, b.take(t), 10)
	require.NoError(t, b.Mails.PruneConfirmations(t.Context()))
	require.Equal(t, 12, b.Count(t, "notification_confirmations"), "of the last day")
}

// The links of mails hold what the store does not, and are those of one channel and address.
func TestNoTokenIsStored(t *testing.T) {
	t.Parallel()
	b := setup(t)
	known := func(token []byte) bool {
		found, err := b.n.Knows(t.Context(), token)
		require.NoError(t, err)
		return found
	}
	require.False(t, known(make([]byte, notifications.TokenBytes)), "no mail was sent yet")
	c := b.put(t, "acme", webhook.ChannelInput{Kind: webhook.ChannelEmail, Target: "Ops@example.com", Notices: everything()})[0]
	mails := b.take(t)
	require.Len(t, mails, 1)
	token := mails[0].Token
	require.Len(t, token, notifications.TokenBytes)
	require.Equal(t, token, b.token(t, c.ID))
	require.True(t, known(token))
	require.False(t, known(token[:len(token)-1]))
	for i := range token {
		changed := slices.Clone(token)
		changed[i] ^= 1
		require.False(t, known(changed), i)
	}
	require.Equal(t, 1, b.Count(t, "notification_keys"))

	found, err := b.WrongStore(t, 0).Notifications.Knows(t.Context(), token)
	require.NoError(t, err)
	require.True(t, found, "every process has the same key")

	b.put(t, "acme", webhook.ChannelInput{ID: c.ID, Kind: webhook.ChannelEmail, Target: "other@example.com", Notices: everything()})
	require.False(t, known(token), "the owner of the old address cannot confirm the new one")
	require.Equal(t, webhook.CodeNotFound, webhook.CodeOf(b.n.Confirm(t.Context(), token)))
}

func TestSubscriptions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.put(t, "acme", webhook.ChannelInput{Kind: webhook.ChannelEmail, Target: "ops@example.com", Notices: everything()})[0]
	token := b.token(t, c.ID)
	state := func() webhook.ChannelState {
		s, err := b.n.Settings(t.Context(), "acme")
		require.NoError(t, err)
		return s.Channels[0].State
	}
	known, err := b.n.Knows(t.Context(), token)
	require.NoError(t, err)
	require.True(t, known)
	unknown := sha256.Sum256([]byte("x"))
	require.Equal(t, webhook.CodeNotFound, webhook.CodeOf(b.n.Confirm(t.Context(), unknown[:])))
	require.Equal(t, webhook.CodeNotFound, webhook.CodeOf(b.n.Unsubscribe(t.Context(), unknown[:])))

	require.NoError(t, b.n.Confirm(t.Context(), token))
	require.NoError(t, b.n.Confirm(t.Context(), token), "twice is once")
	require.Equal(t, webhook.ChannelActive, state())
	b.disable(t)
	b.tellChanges(t)
	require.NoError(t, b.n.Unsubscribe(t.Context(), token))
	require.Equal(t, webhook.ChannelUnsubscribed, state())
	require.Empty(t, b.take(t), "what waits is not sent any more")
	require.Zero(t, b.Count(t, "notification_mails"))
	require.NoError(t, b.n.Confirm(t.Context(), token))
	require.Equal(t, webhook.ChannelUnsubscribed, state(), "the link of an older mail does not subscribe again")
	b.put(t, "acme", webhook.ChannelInput{Kind: webhook.ChannelEmail, Target: "ops@example.com", Notices: everything()})
	require.Equal(t, webhook.ChannelUnsubscribed, state(), "nor does the tenant")

	entries, err := b.ListAudit(t.Context(), webhook.AuditFilter{TenantID: "acme"}, webhook.Page{Limit: 10})
	require.NoError(t, err)
	count := map[string]int{}
	for _, e := range entries {
		count[e.Action]++
	}
	require.Equal(t, 2, count[audit.NotificationsUpdate])
	require.Equal(t, 1, count[audit.NotificationsConfirm])
	require.Equal(t, 1, count[audit.NotificationsUnsubscribe])
}

// A chat shows why its last message did not arrive, and when one arrived.
func TestAChatShowsItsLastFailure(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.put(t, "acme", webhook.ChannelInput{Kind: webhook.ChannelSlack, Target: slackURL, Notices: everything()})
	b.disable(t)
	b.tellChanges(t)
	b.Exec(t, `
		insert into deliveries (id, event_id, endpoint_id, tenant_id, event_type, state, run, attempts, created_at, give_up_at, seq,
			last_reason, last_decision, last_at)
		select delivery_id, event_id, endpoint_id, tenant_id, event_type, 1, 1, 1, created_at, give_up_at, 1, 'http_404', $1, now()
		from outbox`, int16(retry.Retry))
	s, err := b.n.Settings(t.Context(), "acme")
	require.NoError(t, err)
	require.Equal(t, "http_404", s.Channels[0].LastError)
	require.True(t, s.Channels[0].LastToldAt.IsZero())

	b.Exec(t, `update deliveries set last_decision = $1`, int16(retry.Delivered))
	s, err = b.n.Settings(t.Context(), "acme")
	require.NoError(t, err)
	require.Empty(t, s.Channels[0].LastError)
	require.WithinDuration(t, time.Now(), s.Channels[0].LastToldAt, time.Hour)
}
