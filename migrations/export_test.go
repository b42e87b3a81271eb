package migrations

// UpFrom and PendingOf are Up and Pending with other files than the embedded ones.
var (
	UpFrom    = up
	PendingOf = pending
)
