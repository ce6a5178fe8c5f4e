package emulator

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/millrace/millrace/internal/queuexml"
	"github.com/millrace/millrace/queue"
)

// failure is an error response, as documented under "Status and error codes", "Common REST API
// error codes" and "Queue Storage error codes".
type failure struct {
	status  int
	code    string
	message string
	details []queuexml.Detail
	allow   string // Allow header of a 405
}

func (f *failure) Error() string { return f.code + ": " + f.message }

// with returns the failure with additional elements in its document.
func (f *failure) with(details ...queuexml.Detail) *failure {
	c := *f
	c.details = details
	return &c
}

// ofQuery returns the failure about a parameter of the query, with its value.
func (f *failure) ofQuery(name, value, reason string) *failure {
	return f.with(
		queuexml.Detail{Name: "QueryParameterName", Value: name},
		queuexml.Detail{Name: "QueryParameterValue", Value: value},
		queuexml.Detail{Name: "Reason", Value: reason})
}

func (f *failure) because(format string, args ...any) *failure {
	c := *f
	c.message = fmt.Sprintf(format, args...)
	return &c
}

func newFailure(status int, code, message string) *failure {
	return &failure{status: status, code: code, message: message}
}

// The failures of the service, ordered by status.
var (
	errInvalidURI            = newFailure(400, "InvalidUri", "The requested URI does not represent any resource on the server.")
	errInvalidResourceName   = newFailure(400, "InvalidResourceName", "The specified resource name contains invalid characters.")
	errOutOfRangeInput       = newFailure(400, "OutOfRangeInput", "The specified resource name length is not within the permissible limits.")
	errInvalidHeaderValue    = newFailure(400, "InvalidHeaderValue", "The value for one of the HTTP headers is not in the correct format.")
	errMissingHeader         = newFailure(400, "MissingRequiredHeader", "An HTTP header that's mandatory for this request is not specified.")
	errInvalidQueryValue     = newFailure(400, "InvalidQueryParameterValue", "Value for one of the query parameters specified in the request URI is invalid.")
	errOutOfRangeQueryValue  = newFailure(400, "OutOfRangeQueryParameterValue", "One of the query parameters specified in the request URI is outside the permissible range.")
	errMissingQuery          = newFailure(400, "MissingRequiredQueryParameter", "A query parameter that's mandatory for this request is not specified.")
	errInvalidXML            = newFailure(400, "InvalidXmlDocument", "XML specified is not syntactically valid.")
	errInvalidXMLValue       = newFailure(400, "InvalidXmlNodeValue", "The value provided for one of the XML nodes in the request body was not in the correct format.")
	errInvalidInput          = newFailure(400, "InvalidInput", "One of the request inputs is not valid.")
	errInvalidMetadata       = newFailure(400, "InvalidMetadata", "The metadata specified is invalid. It has characters that are not permitted.")
	errEmptyMetadataKey      = newFailure(400, "EmptyMetadataKey", "The key for one of the metadata key-value pairs is empty.")
	errMetadataTooLarge      = newFailure(400, "MetadataTooLarge", "The size of the specified metadata exceeds the maximum size permitted.")
	errInvalidAuthentication = newFailure(400, "InvalidAuthenticationInfo", "Authentication information is not given in the correct format. Check the value of Authorization header.")
	errInvalidMD5            = newFailure(400, "InvalidMd5", "The MD5 value specified in the request is invalid. MD5 value must be 128 bits and base64-encoded.")
	errMD5Mismatch           = newFailure(400, "Md5Mismatch", "The MD5 value specified in the request did not match with the MD5 value calculated by the server.")
	errPopReceiptMismatch    = newFailure(400, "PopReceiptMismatch", "The specified pop receipt did not match the pop receipt for a dequeued message.")
	errNoAuthentication      = newFailure(401, "NoAuthenticationInformation", "Server failed to authenticate the request. Please refer to the information in the www-authenticate header.")
	errInvalidToken          = newFailure(401, "InvalidAuthenticationInfo", "Server failed to authenticate the request. Please refer to the information in the www-authenticate header.")
	errAuthenticationFailed  = newFailure(403, "AuthenticationFailed", "Server failed to authenticate the request. Make sure the value of Authorization header is formed correctly including the signature.")
	errAuthorizationFailure  = newFailure(403, "AuthorizationFailure", "This request is not authorized to perform this operation.")
	errPermissionMismatch    = newFailure(403, "AuthorizationPermissionMismatch", "This request is not authorized to perform this operation using this permission.")
	errProtocolMismatch      = newFailure(403, "AuthorizationProtocolMismatch", "This request is not authorized to perform this operation using this protocol.")
	errResourceTypeMismatch  = newFailure(403, "AuthorizationResourceTypeMismatch", "This request is not authorized to perform this operation using this resource type.")
	errServiceMismatch       = newFailure(403, "AuthorizationServiceMismatch", "This request is not authorized to perform this operation using this service.")
	errSourceIPMismatch      = newFailure(403, "AuthorizationSourceIPMismatch", "This request is not authorized to perform this operation using this source IP.")
	errPreflight             = newFailure(403, "CorsPreflightFailure", "CORS not enabled or no matching rule found for this request.")
	errReadOnly              = newFailure(403, "InsufficientAccountPermissions", "Write operations are not allowed.")
	errMessageNotFound       = newFailure(404, "MessageNotFound", "The specified message does not exist.")
	errQueueNotFound         = newFailure(404, "QueueNotFound", "The specified queue does not exist.")
	errResourceNotFound      = newFailure(404, "ResourceNotFound", "The specified resource does not exist.")
	errUnsupportedVerb       = newFailure(405, "UnsupportedHttpVerb", "The resource doesn't support specified Http Verb.")
	errRequestTimeout        = newFailure(408, "OperationTimedOut", "Operation could not be completed within the specified time.")
	errQueueAlreadyExists    = newFailure(409, "QueueAlreadyExists", "The specified queue already exists.")
	errQueueBeingDeleted     = newFailure(409, "QueueBeingDeleted", "The specified queue is being deleted.")
	errMissingLength         = newFailure(411, "MissingContentLengthHeader", "The Content-Length header was not specified.")
	errBodyTooLarge          = newFailure(413, "RequestBodyTooLarge", "The request body is too large and exceeds the maximum permissible limit.")
	errInternal              = newFailure(500, "InternalError", "The server encountered an internal error. Please retry the request.")
	errTimedOut              = newFailure(500, "OperationTimedOut", "Operation could not be completed within the specified time.")
	errServerBusy            = newFailure(503, "ServerBusy", "The server is currently unable to receive requests. Please retry your request.")
	errNoMemory              = newFailure(503, "ServerBusy", "Too many large requests and responses are in progress. Retry later.")
	errAccountBusy           = newFailure(503, "ServerBusy", "Operations per second is over the account limit.")
)

// toFailure converts an error of the engine, which never contains a receipt or a text.
func toFailure(err error) *failure {
	var f *failure
	switch {
	case errors.As(err, &f):
		return f
	case errors.Is(err, queue.ErrQueueMissing):
		return errQueueNotFound
	case errors.Is(err, queue.ErrReceiptMismatch):
		return errPopReceiptMismatch
	case errors.Is(err, queue.ErrMessageGone):
		return errMessageNotFound
	case errors.Is(err, queue.ErrQueueExists):
		return errQueueAlreadyExists
	case errors.Is(err, queue.ErrQueueBeingDeleted):
		return errQueueBeingDeleted
	case errors.Is(err, queue.ErrTooLarge):
		return errBodyTooLarge.with(maxLimit(queue.MaxText))
	case errors.Is(err, queue.ErrInvalid):
		return errInvalidInput
	default:
		return errInternal
	}
}

func maxLimit(n int) queuexml.Detail {
	return queuexml.Detail{Name: "MaxLimit", Value: strconv.Itoa(n)}
}
