// Names for the tests, which are in a package of their own.

package audit

var APIName = apiName
var AuditArgs = auditArgs

const AuditList = auditList
