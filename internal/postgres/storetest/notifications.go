package storetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/everpost/everpost/internal/webhook"
)

// FillNotifications stores something of a tenant in every table of the notifications.
func FillNotifications(t *testing.T, s *Stores, tenant string, endpoint webhook.EndpointID) {
	t.Helper()
	for _, sql := range []string{
		`insert into notification_settings (tenant_id) select $1::text where $2::uuid is not null`,
		`insert into notification_channels (id, tenant_id, place, kind, address, notices, state)
			select $2::uuid, $1::text, 0, 0, 'ops@example.com', 63, 1`,
		`insert into notification_channels (id, tenant_id, place, kind, endpoint_id, target_sha256, notices, state)
			select gen_random_uuid(), $1::text, 1, 1, $2::uuid, sha256(''), 63, 1`,
		`insert into notification_changes (id, tenant_id, endpoint_id, state, summary) values (gen_random_uuid(), $1::text, $2::uuid, 2, '')`,
		`insert into notification_told (endpoint_id, told, expiring_at) select $2::uuid, 1, now() where $1::text is not null`,
		`insert into notification_mails (id, channel_id) select gen_random_uuid(), $2::uuid where $1::text is not null`,
		`insert into notification_confirmations (id, owner, address_sha256) select gen_random_uuid(), $1::text, sha256('') where $2::uuid is not null`,
	} {
		_, err := s.Pool().Exec(t.Context(), sql, tenant, endpoint)
		require.NoError(t, err, sql)
	}
}
