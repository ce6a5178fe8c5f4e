package queuexml

// Detail is an additional element of an error document, such as QueryParameterName. The name is
// not escaped.
type Detail struct{ Name, Value string }

// AppendError appends an error document (Status and error codes).
func AppendError(dst []byte, code, message string, details []Detail) []byte {
	dst = append(dst, Prolog+"<Error><Code>"...)
	dst = AppendText(dst, code)
	dst = append(dst, "</Code><Message>"...)
	dst = AppendText(dst, message)
	dst = append(dst, "</Message>"...)
	for _, d := range details {
		dst = appendElement(dst, d.Name, d.Value)
	}
	return append(dst, "</Error>"...)
}

// appendElement appends an element with text. The name is not escaped.
func appendElement(dst []byte, name, text string) []byte {
	dst = append(dst, '<')
	dst = append(dst, name...)
	dst = append(dst, '>')
	dst = AppendText(dst, text)
	dst = append(dst, "</"...)
	dst = append(dst, name...)
	return append(dst, '>')
}
