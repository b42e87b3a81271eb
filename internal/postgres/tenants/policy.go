package tenants

import "github.com/everpost/everpost/internal/retry"

// PolicyOfEndpoint is the retry policy of the tenant of an endpoint e, null where it has none.
const PolicyOfEndpoint = `(select t.retry_policy from tenants t where t.id = e.tenant_id)`

// PolicyColumn is a retry policy as it is written: null for none.
func PolicyColumn(p retry.Policy) *retry.Policy {
	if p.IsZero() {
		return nil
	}
	return &p
}

// PolicyOf is the inverse of PolicyColumn.
func PolicyOf(column *retry.Policy) retry.Policy {
	if column == nil {
		return retry.Policy{}
	}
	return *column
}
