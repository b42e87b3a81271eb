package console

import "github.com/everpost/everpost/internal/webhook"

// access is who may open a page.
type access uint8

const (
	signedIn  access = iota // every session by a key; a path with a tenant must be of the session's
	public                  // also without a session
	operators               // sessions by an operator's key

	portalLooks       // every session of a portal
	portalManages     // those whose link permits changes
	portalReveals     // those whose link permits to see secrets
	portalRotates     // those whose link permits both
	portalReplays     // those whose link permits to send again
	portalFilters     // those whose link permits to try filters
	portalSetsFilters // those whose link permits to set them, too
)

// sees reports whether a session may open pages of this access.
func (a access) sees(s session) bool {
	switch a {
	case public:
		return true
	case signedIn:
		return s.signedIn() && !s.Access.Portal()
	case operators:
		return s.operator()
	case portalLooks:
		return s.Access.Portal()
	case portalManages:
		return s.Access == webhook.AccessManage
	case portalReveals:
		return s.Access.Portal() && s.Portal.Secrets
	case portalRotates:
		return s.Access == webhook.AccessManage && s.Portal.Secrets
	case portalReplays:
		return s.Access.Portal() && s.Portal.Replay
	case portalFilters:
		return s.Access.Portal() && s.Portal.Filters
	case portalSetsFilters:
		return s.Access == webhook.AccessManage && s.Portal.Filters
	}
	return false
}
