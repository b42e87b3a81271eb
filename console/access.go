package console

// access is who may open a page.
type access uint8

const (
	signedIn  access = iota // every session; a path with a tenant must be of the session's
	public                  // also without a session
	keysOnly                // sessions by a key, not portals
	operators               // sessions by an operator's key
)

// sees reports whether a session may open pages of this access.
func (a access) sees(s session) bool {
	switch a {
	case public:
		return true
	case signedIn:
		return s.signedIn()
	case keysOnly:
		return s.signedIn() && !s.Access.Portal()
	case operators:
		return s.operator()
	}
	return false
}
