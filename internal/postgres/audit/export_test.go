// What the tests look into.

package audit

var APIName = apiName
var AuditArgs = auditArgs

const AuditList = auditList
