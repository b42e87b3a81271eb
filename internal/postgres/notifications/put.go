package notifications

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/postgres/audit"
	"github.com/everpost/everpost/internal/webhook"
)

// plan is how the stored channels become those that are to be.
type plan struct {
	channels []planned
	removed  []channelRow       // with their rows
	added    []webhook.Endpoint // of chats
}

// planned is a channel as it is to be.
type planned struct {
	channelRow

	fresh   bool // it gets a new row
	confirm bool // it is to be asked for confirmation
}

// Put replaces the channels of a tenant; "" for those of the installation. A channel whose target is the same stays as it is: confirmed,
// unsubscribed or bouncing. Another mail address has to be confirmed first.
//
// CodeNotFound: there is no such tenant; CodeInvalid: the id of a channel that does not exist; CodeConflict: the channels were changed meanwhile.
func (s *Notifications) Put(ctx context.Context, by webhook.Actor, owner string, in webhook.NotificationInput) (webhook.NotificationSettings, error) {
	before, err := s.read(ctx, owner)
	if err != nil {
		return webhook.NotificationSettings{}, err
	}
	p, err := s.plan(owner, before.channels, in.Channels)
	if err != nil {
		return webhook.NotificationSettings{}, err
	}
	write := func(ctx context.Context, tx pgx.Tx) error {
		if owner == "" { // the endpoints above are the operator's tenant's
			if _, err := tx.Exec(ctx, postgres.SetLocally, postgres.SettingRole, postgres.RoleOperator); err != nil {
				return err
			}
		}
		if err := p.write(ctx, tx, owner, before.version, in.PortalURL); err != nil {
			return err
		}
		return audit.Write(ctx, tx, by, owner, audit.NotificationsUpdate, subjectOf(owner), p.detail(before, in))
	}
	home := s.home(owner)
	removed := p.removedEndpoints(home)
	if len(removed[home])+len(p.added) > 0 {
		err = s.endpoints.ChangeInternal(ctx, home, p.added, removed[home], write)
	} else {
		err = s.core.OfTenantOrOperator(owner).InTx(ctx, "change notification channels", write)
	}
	if err != nil {
		return webhook.NotificationSettings{}, err
	}
	delete(removed, home)
	for tenant, ids := range removed { // of a tenant that was the operator's before: without their channels nothing is sent to them
		if err := s.endpoints.ChangeInternal(ctx, tenant, nil, ids, func(context.Context, pgx.Tx) error { return nil }); err != nil {
			return webhook.NotificationSettings{}, err
		}
	}
	return s.Settings(ctx, owner)
}

// subjectOf is what the audit log names.
func subjectOf(owner string) string {
	if owner == "" {
		return "installation"
	}
	return owner
}

// detail is what the audit log says: counts and names, no target.
func (p *plan) detail(before stored, in webhook.NotificationInput) []byte {
	added := 0
	for i := range p.channels {
		if p.channels[i].fresh {
			added++
		}
	}
	d := map[string]any{"channels": len(p.channels), "added": added, "removed": len(p.removed)}
	if before.portal != in.PortalURL {
		d["changed"] = []string{"portal_url"}
	}
	return postgres.JSONBytes(d)
}

// removedEndpoints are the endpoints of removed chats, by their tenant: home unless another one is known.
func (p *plan) removedEndpoints(home string) map[string][]webhook.EndpointID {
	ids := map[string][]webhook.EndpointID{}
	for i := range p.removed {
		if c := &p.removed[i]; !c.endpoint.IsZero() {
			tenant := cmp.Or(c.home, home)
			ids[tenant] = append(ids[tenant], c.endpoint)
		}
	}
	return ids
}

// plan finds the stored channel of each that is to be: by its id, or by its kind and target.
func (s *Notifications) plan(owner string, before []channelRow, in []webhook.ChannelInput) (*plan, error) {
	var (
		p     plan
		wrong []webhook.FieldError
		used  = map[webhook.ChannelID]bool{}
	)
	refuse := func(i int, field, message string) {
		wrong = append(wrong, webhook.FieldError{Field: fmt.Sprintf("channels[%d].%s", i, field), Message: message})
	}
	for i := range in {
		c := &in[i]
		same := func(other planned) bool { return c.Target != "" && other.Kind == c.Kind && other.hasTarget(c.Target) }
		if slices.ContainsFunc(p.channels, same) {
			refuse(i, "target", "is that of an earlier channel")
			continue
		}
		known := find(before, c, used)
		switch {
		case known == nil && !c.ID.IsZero():
			refuse(i, "id", "names a channel that does not exist, or twice; leave it out to add one")
			continue
		case known != nil && known.Kind != c.Kind:
			refuse(i, "kind", "cannot be changed; leave out the id to add a channel")
			continue
		case known == nil && c.Target == "":
			refuse(i, "target", "is required for a new channel")
			continue
		case c.Kind != webhook.ChannelEmail && s.home(owner) == "" && (known == nil || c.Target != "" && !known.hasTarget(c.Target)):
			refuse(i, "kind", "needs EVERPOST_OPERATOR_TENANT: the chats of the installation are endpoints of that tenant; only email does without")
			continue
		}
		next := s.planOne(&p, owner, known, c)
		used[next.ID] = true
		p.channels = append(p.channels, next)
	}
	if len(wrong) > 0 {
		return nil, &webhook.Error{Code: webhook.CodeInvalid, Message: "the request is not valid", Fields: wrong}
	}
	for i := range before {
		if !used[before[i].ID] {
			p.removed = append(p.removed, before[i])
		}
	}
	return &p, nil
}

// find returns the stored channel that an input means; nil for none.
func find(before []channelRow, c *webhook.ChannelInput, used map[webhook.ChannelID]bool) *channelRow {
	for i := range before {
		b := &before[i]
		if used[b.ID] {
			continue
		}
		if c.ID == b.ID || c.ID.IsZero() && c.Kind == b.Kind && b.hasTarget(c.Target) {
			return b
		}
	}
	return nil
}

// hasTarget reports whether the channel's target is this one.
func (c *channelRow) hasTarget(target string) bool {
	if c.Kind == webhook.ChannelEmail {
		return strings.EqualFold(c.Address, target)
	}
	return bytes.Equal(c.targetSHA256, sum(target))
}

func sum(text string) []byte {
	of := sha256.Sum256([]byte(text))
	return of[:]
}

// planOne plans a channel. One with another target is replaced, under the same id.
func (s *Notifications) planOne(p *plan, owner string, known *channelRow, c *webhook.ChannelInput) planned {
	if known != nil && (c.Target == "" || known.hasTarget(c.Target)) {
		next := planned{channelRow: *known, confirm: known.State == webhook.ChannelUnconfirmed}
		next.Notices, next.EndpointIDs = c.Notices, c.EndpointIDs
		return next
	}
	next := planned{fresh: true, channelRow: channelRow{Channel: webhook.Channel{
		ID: webhook.NewChannelID(), Kind: c.Kind, Notices: c.Notices, EndpointIDs: c.EndpointIDs,
	}}}
	if known != nil {
		next.ID = known.ID
		p.removed = append(p.removed, *known)
	}
	if c.Kind == webhook.ChannelEmail {
		next.Address, next.State, next.confirm = c.Target, webhook.ChannelUnconfirmed, true
		return next
	}
	e := webhook.Endpoint{
		ID: webhook.NewEndpointID(), TenantID: s.home(owner), Internal: true, URL: c.Target, EventTypes: []string{webhook.NotificationType},
		Description: "notifications: " + c.Kind.String(), Timeout: webhook.DefaultTimeout, MaxInFlight: 1, RateLimit: 1,
		CircuitBreaker: webhook.DefaultCircuitBreaker(), Signature: webhook.SignatureV1,
	}
	next.State, next.endpoint, next.targetSHA256 = webhook.ChannelActive, e.ID, sum(c.Target)
	p.added = append(p.added, e)
	return next
}

// write writes the plan, unless the settings have another version than it was made of.
func (p *plan) write(ctx context.Context, tx pgx.Tx, owner string, version int64, portal string) error {
	tag, err := tx.Exec(ctx, `
		insert into notification_settings as s (tenant_id, portal_url) select nullif($1, ''), $2
		on conflict (owner) do update set version = s.version + 1, portal_url = excluded.portal_url where s.version = $3`, owner, portal, version)
	if err != nil {
		return err
	}
	if tag.RowsAffected() == 0 {
		return &webhook.Error{Code: webhook.CodeConflict, Message: "the channels were changed at the same time: read them again"}
	}
	batch := &pgx.Batch{}
	for i := range p.removed {
		batch.Queue(`delete from notification_channels where id = $1`, [16]byte(p.removed[i].ID))
	}
	for place := range p.channels {
		c := &p.channels[place]
		if c.fresh {
			c.queueInsert(batch, owner, place)
		} else {
			batch.Queue(`update notification_channels set place = $2, notices = $3, endpoint_ids = $4 where id = $1`,
				[16]byte(c.ID), place, int32(c.Notices), rawIDs(c.EndpointIDs))
		}
		if c.confirm {
			c.queueConfirmation(batch)
		}
	}
	return tx.SendBatch(ctx, batch).Close()
}

func (c *planned) queueInsert(batch *pgx.Batch, owner string, place int) {
	var endpoint *[16]byte
	if !c.endpoint.IsZero() {
		endpoint = (*[16]byte)(&c.endpoint)
	}
	batch.Queue(`
		insert into notification_channels (id, tenant_id, place, kind, address, endpoint_id, target_sha256, notices, endpoint_ids, state)
		values ($1, nullif($2, ''), $3, $4, $5, $6, $7, $8, $9, $10)`,
		[16]byte(c.ID), owner, place, int16(c.Kind), c.Address, endpoint, c.targetSHA256, int32(c.Notices), rawIDs(c.EndpointIDs), int16(c.State))
}

// queueConfirmation asks for a mail with the link that confirms. For a channel that was asked before, only if no such mail waits or was sent within
// an hour.
func (c *planned) queueConfirmation(batch *pgx.Batch) {
	batch.Queue(`
		insert into notification_mails (id, channel_id)
		select $1, $2 where $3 or not exists (select from notification_mails where channel_id = $2)
			and not exists (select from notification_confirmations where address_sha256 = $4 and sent_at > now() - $5::bigint * interval '1 millisecond')`,
		uuid.Must(uuid.NewV7()), [16]byte(c.ID), c.fresh, addressSum(c.Address), confirmEvery.Milliseconds())
}

// addressSum identifies an address in whatever case.
func addressSum(address string) []byte { return sum(strings.ToLower(address)) }

// rawIDs are ids as pgx takes them; nil for nil, which is null.
func rawIDs(ids []webhook.EndpointID) [][16]byte {
	if ids == nil {
		return nil
	}
	raw := make([][16]byte, len(ids))
	for i := range ids {
		raw[i] = ids[i]
	}
	return raw
}
