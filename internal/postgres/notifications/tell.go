package notifications

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/explain"
	"github.com/everpost/everpost/internal/notify"
	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

// NoteState writes, in the transaction of a change of an endpoint's state, that people may have to be told of it. It reads nothing. A pause is told
// nobody.
func NoteState(ctx context.Context, tx pgx.Tx, e *webhook.Endpoint) error {
	if e.Internal || e.State == webhook.EndpointPaused {
		return nil
	}
	_, err := tx.Exec(ctx, `insert into notification_changes (id, tenant_id, endpoint_id, state, summary) values ($1, $2, $3, $4, $5)`,
		uuid.Must(uuid.NewV7()), e.TenantID, [16]byte(e.ID), int16(e.State), explain.StateChanged(e))
	return err
}

// change is a row of notification_changes, with what is told of its endpoint.
type change struct {
	endpoint    [16]byte
	tenant      string
	state       int16
	summary     string
	at          time.Time
	url         string
	description string
	deleted     bool // the endpoint is, meanwhile
}

// TakeChanges tells of changes of endpoints' states, at most limit of them, and returns how many it took: the oldest that no other process takes.
// It reads them by their primary key, and for each the channels of two owners.
func (s *Notifications) TakeChanges(ctx context.Context, limit int) (n int, err error) {
	err = s.core.AsWorker().InTx(ctx, "take changes to tell of", func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `
			with taken as (
				delete from notification_changes where id = any(array(
					select id from notification_changes order by id limit $1 for update skip locked))
				returning id, tenant_id, endpoint_id, state, summary, at)
			select t.endpoint_id, t.tenant_id, t.state, t.summary, t.at, coalesce(e.url, ''), coalesce(e.description, ''), e.id is null
			from taken t left join endpoints e on e.id = t.endpoint_id and e.deleted_at is null order by t.id`, limit)
		if err != nil {
			return err
		}
		changes, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c change, err error) {
			return c, row.Scan(&c.endpoint, &c.tenant, &c.state, &c.summary, &c.at, &c.url, &c.description, &c.deleted)
		})
		if err != nil {
			return err
		}
		n = len(changes)
		for i := range changes {
			if err := s.tellChange(ctx, tx, &changes[i]); err != nil {
				return err
			}
		}
		return nil
	})
	return n, err
}

func (s *Notifications) tellChange(ctx context.Context, tx pgx.Tx, c *change) error {
	var heard bool // else nothing is told, and nothing is to be recovered from
	err := tx.QueryRow(ctx, `select exists (select from notification_channels where owner = any($1))`, []string{"", c.tenant}).Scan(&heard)
	if err != nil || c.deleted || !heard {
		return err
	}
	told, err := lockTold(ctx, tx, c.endpoint)
	if err != nil {
		return err
	}
	tell, last := notify.AfterChange(told.Last, webhook.EndpointState(c.state)) //nolint:gosec // written by us
	if last == told.Last {
		return writeTold(ctx, tx, c.endpoint, told) // without a row that says nothing
	}
	told.Last, told.At = last, s.core.Now()
	if err := writeTold(ctx, tx, c.endpoint, told); err != nil || !tell {
		return err
	}
	return s.send(ctx, tx, &webhook.Notification{
		Notice: webhook.NoticeDisabled, TenantID: c.tenant, Endpoint: c.endpoint, URL: webhook.PlainURL(c.url), About: c.description,
		Summary: c.summary, At: c.at.UTC(),
	})
}

// Tell stores notifications about an endpoint, with the operational event of a backlog that expires, and what was told of it then, in one
// transaction. It returns false, and stores nothing, if something else was told meanwhile.
func (s *Notifications) Tell(ctx context.Context, all []webhook.Notification, id webhook.EndpointID, from, to webhook.EndpointTold) (told bool, err error) {
	err = s.core.AsWorker().InTx(ctx, "tell of endpoint "+id.String(), func(ctx context.Context, tx pgx.Tx) error {
		told = false
		now, err := lockTold(ctx, tx, id)
		if err != nil {
			return err
		}
		if now.Last != from.Last || !now.Expiring.Equal(from.Expiring) {
			return writeTold(ctx, tx, id, now) // without a row that says nothing
		}
		if err := writeTold(ctx, tx, id, to); err != nil {
			return err
		}
		for i := range all {
			if err := s.send(ctx, tx, &all[i]); err != nil {
				return err
			}
			if all[i].Notice != webhook.NoticeBacklogExpiring {
				continue
			}
			if err := s.events.NoteBacklog(ctx, tx, id, all[i].Summary); err != nil {
				return err
			}
		}
		told = true
		return nil
	})
	return told, err
}

// lockTold returns what was told of an endpoint, and locks that until the transaction ends.
func lockTold(ctx context.Context, tx pgx.Tx, id [16]byte) (told webhook.EndpointTold, err error) {
	var (
		last     int16
		expiring *time.Time
	)
	_, err = tx.Exec(ctx, `insert into notification_told (endpoint_id, told, expiring_at) values ($1, 0, null) on conflict (endpoint_id) do nothing`, id)
	if err != nil {
		return told, err
	}
	err = tx.QueryRow(ctx, `select told, expiring_at, at from notification_told where endpoint_id = $1 for update`, id).Scan(&last, &expiring, &told.At)
	told.Last, told.Expiring = webhook.Told(last), postgres.OrZero(expiring) //nolint:gosec // written by us
	return told, err
}

// writeTold writes what was told of an endpoint. A row that says nothing is removed.
func writeTold(ctx context.Context, tx pgx.Tx, id [16]byte, told webhook.EndpointTold) (err error) {
	if told.Last == webhook.ToldNothing && told.Expiring.IsZero() {
		_, err = tx.Exec(ctx, `delete from notification_told where endpoint_id = $1`, id)
		return err
	}
	_, err = tx.Exec(ctx, `update notification_told set told = $2, expiring_at = $3, at = $4 where endpoint_id = $1`, id, int16(told.Last),
		postgres.Optional(told.Expiring), told.At)
	return err
}

// send stores a notification for every active channel that asks for it: those of the tenant, and those of the installation.
func (s *Notifications) send(ctx context.Context, tx pgx.Tx, n *webhook.Notification) error {
	owners := []string{"", n.TenantID}
	return s.sendTo(ctx, tx, n, owners)
}

// sendTo reads the channels of owners by notification_channels_owner, MaxChannels of each at most. What is of no endpoint goes to all that ask
// for it.
func (s *Notifications) sendTo(ctx context.Context, tx pgx.Tx, n *webhook.Notification, owners []string) error {
	rows, err := tx.Query(ctx, `
		select `+channelColumns+`, s.portal_url from notification_channels c join notification_settings s on s.owner = c.owner
		where c.owner = any($1) and c.state = $2 and c.notices & $3 <> 0 and (c.endpoint_ids is null or $5 or $4 = any(c.endpoint_ids))
		order by c.owner, c.place`,
		owners, int16(webhook.ChannelActive), int32(webhook.Notices(0).With(n.Notice)), [16]byte(n.Endpoint), n.Endpoint.IsZero())
	if err != nil {
		return err
	}
	type target struct {
		channelRow

		portal string
	}
	targets, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (t target, err error) {
		t.channelRow, err = scanChannel(row, &t.portal)
		return t, err
	})
	if err != nil {
		return err
	}
	for i := range targets {
		t := &targets[i]
		if t.Kind == webhook.ChannelEmail {
			_, err = tx.Exec(ctx, `insert into notification_mails (id, channel_id, notification) values ($1, $2, $3)`,
				uuid.Must(uuid.NewV7()), [16]byte(t.ID), postgres.JSONBytes(n))
		} else {
			err = s.postTo(ctx, tx, t.Kind, t.endpoint, n, t.portal)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Notifications) postTo(ctx context.Context, tx pgx.Tx, kind webhook.ChannelKind, id webhook.EndpointID, n *webhook.Notification, portal string) error {
	body, err := notify.Body(kind, n, portal)
	if err != nil {
		return err
	}
	return s.events.PostTo(ctx, tx, id, webhook.NotificationType, body)
}
