package emulator

import "time"

// timeFormats are the formats of times in signatures, access policies and key requests (Create a
// service SAS, "Specify the signature validity interval"). Parsing accepts fractions of a second
// too.
var timeFormats = [...]string{"2006-01-02T15:04:05Z07:00", "2006-01-02T15:04Z07:00", "2006-01-02"}

// parseTime parses an ISO 8601 time in a format that the service accepts.
func parseTime(text string) (time.Time, bool) {
	if len(text) > len("2006-01-02T15:04:05.0000000+07:00") {
		return time.Time{}, false
	}
	for _, format := range timeFormats {
		if t, err := time.Parse(format, text); err == nil {
			t = t.UTC() // may change the year
			return t, t.Year() >= 1 && t.Year() <= 9999
		}
	}
	return time.Time{}, false
}

func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }
