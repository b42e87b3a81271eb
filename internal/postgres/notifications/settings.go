package notifications

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/retry"
	"github.com/everpost/everpost/internal/webhook"
)

// channelRow is a row of notification_channels.
type channelRow struct {
	webhook.Channel

	endpoint     webhook.EndpointID // zero for mail
	home         string             // the tenant of the endpoint, of a channel of the installation
	targetSHA256 []byte
}

const channelColumns = `c.id, c.kind, c.address, c.endpoint_id, c.target_sha256, c.notices, c.endpoint_ids, c.state, c.last_error, c.last_error_at,
	c.last_told_at`

// scanChannel scans channelColumns, and the columns after them into further.
func scanChannel(row pgx.CollectableRow, further ...any) (c channelRow, err error) {
	var (
		id            [16]byte
		endpoint      *[16]byte
		kind, state   int16
		notices       int32
		ids           [][16]byte
		lastErrorTime *time.Time
		lastToldTime  *time.Time
	)
	err = row.Scan(append([]any{
		&id, &kind, &c.Address, &endpoint, &c.targetSHA256, &notices, &ids, &state, &c.LastError, &lastErrorTime, &lastToldTime,
	}, further...)...)
	c.ID, c.Kind, c.State = id, webhook.ChannelKind(kind), webhook.ChannelState(state)  //nolint:gosec // written by us
	c.Notices, c.LastErrorAt = webhook.Notices(notices), postgres.OrZero(lastErrorTime) //nolint:gosec // written by us
	c.LastToldAt = postgres.OrZero(lastToldTime)
	if endpoint != nil {
		c.endpoint = *endpoint
	}
	if ids != nil {
		c.EndpointIDs = make([]webhook.EndpointID, len(ids))
		for i := range ids {
			c.EndpointIDs[i] = ids[i]
		}
	}
	return c, err
}

// stored are the settings of an owner as they are stored.
type stored struct {
	version  int64 // 0: none are stored
	portal   string
	channels []channelRow
}

// Settings reads the channels of a tenant; "" for those of the installation. A chat shows the failure of its last delivery, and when it was told
// something last, of the last week.
// CodeNotFound: there is no such tenant.
func (s *Notifications) Settings(ctx context.Context, owner string) (webhook.NotificationSettings, error) {
	now, err := s.read(ctx, owner)
	if err != nil {
		return webhook.NotificationSettings{}, err
	}
	if err := s.addChatDeliveries(ctx, owner, now.channels); err != nil {
		return webhook.NotificationSettings{}, err
	}
	shown := webhook.NotificationSettings{PortalURL: now.portal, Channels: make([]webhook.Channel, len(now.channels))}
	for i := range now.channels {
		shown.Channels[i] = now.channels[i].Channel
	}
	return shown, nil
}

// read reads at most MaxChannels rows by notification_channels_owner.
func (s *Notifications) read(ctx context.Context, owner string) (now stored, err error) {
	err = s.core.OfTenantOrOperator(owner).InSnapshot(ctx, "read notification channels", func(ctx context.Context, tx pgx.Tx) error {
		var known bool
		err := tx.QueryRow(ctx, `select $1 = '' or exists (select from tenants where id = $1)`, owner).Scan(&known)
		switch {
		case err != nil:
			return err
		case !known:
			return webhook.NotFound("tenant")
		}
		now, err = readIn(ctx, tx, owner)
		return err
	})
	return now, err
}

func readIn(ctx context.Context, tx pgx.Tx, owner string) (now stored, err error) {
	err = tx.QueryRow(ctx, `select version, portal_url from notification_settings where owner = $1`, owner).Scan(&now.version, &now.portal)
	if err != nil && !postgres.IsNoRows(err) {
		return now, err
	}
	rows, err := tx.Query(ctx, `select `+channelColumns+` from notification_channels c where c.owner = $1 order by c.place`, owner)
	if err != nil {
		return now, err
	}
	now.channels, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (channelRow, error) { return scanChannel(row) })
	if err != nil || owner != "" {
		return now, err
	}
	for i := range now.channels { // the installation may have had another tenant before
		c := &now.channels[i]
		if c.endpoint.IsZero() {
			continue
		}
		if err := tx.QueryRow(ctx, `select tenant_id from endpoints where id = $1`, [16]byte(c.endpoint)).Scan(&c.home); err != nil {
			return now, err
		}
	}
	return now, nil
}

// What is looked for of a chat's deliveries: so far back, and so many.
const (
	chatAge        = 7 * day
	chatDeliveries = 20
)

// addChatDeliveries adds to each chat the failure of its last delivery, and when the last one was delivered, by deliveries_by_endpoint.
func (s *Notifications) addChatDeliveries(ctx context.Context, owner string, channels []channelRow) error {
	var ids [][16]byte
	at := map[[16]byte]*channelRow{}
	for i := range channels {
		if c := &channels[i]; !c.endpoint.IsZero() {
			ids, at[c.endpoint] = append(ids, c.endpoint), c
		}
	}
	if len(ids) == 0 || s.home(owner) == "" {
		return nil
	}
	return s.core.OfTenant(s.home(owner)).ByIndex().WithConn(ctx, "read the deliveries of chats", func(ctx context.Context, conn postgres.Querier) error {
		rows, err := conn.Query(ctx, `
			select e.id, d.last_reason, d.last_decision, d.last_at from unnest($1::uuid[]) e (id)
			cross join lateral (
				select id, last_reason, last_decision, last_at from deliveries
				where endpoint_id = e.id and id >= $2 and last_at is not null order by id desc limit $3) d
			order by d.id`,
			ids, postgres.IDsFrom(s.core.Now().Add(-chatAge)), chatDeliveries)
		if err != nil {
			return err
		}
		var (
			id       [16]byte
			reason   string
			decision int16
			last     time.Time
		)
		_, err = pgx.ForEachRow(rows, []any{&id, &reason, &decision, &last}, func() error {
			c := at[id] // the oldest delivery comes first
			if decision == int16(retry.Delivered) {
				c.LastError, c.LastErrorAt, c.LastToldAt = "", time.Time{}, last.UTC()
			} else {
				c.LastError, c.LastErrorAt = reason, last.UTC()
			}
			return nil
		})
		return err
	})
}
