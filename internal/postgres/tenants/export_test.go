// What the tests look into.

package tenants

var LockTenant = lockTenant

const TombstoneBatch = tombstoneBatch
