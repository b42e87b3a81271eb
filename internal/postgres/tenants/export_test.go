// Names for the tests, which are in a package of their own.

package tenants

var LockTenant = lockTenant

const TombstoneBatch = tombstoneBatch
