#!/bin/sh
# Computes the totals of a usage file by other means than the billing example: sort, awk for texts and bc for integers.
# No number is a floating-point number: quantities and prices are integers in units of 10^-9, products in units of 10^-18.
#
#   sh recompute.sh usage.csv [tariffs.csv]
#
# It prints CSV: account,tariff,currency,records,quantity,amount, in the order of account and tariff, byte by byte.
# It leaves out malformed lines, unknown tariffs, and all but the first record of an id that can be billed, as the
# example does. It does not notice two things: characters of UTF-8 that cannot be printed, and currencies of three
# letters that do not exist.
set -eu
LC_ALL=C
BC_LINE_LENGTH=0 # GNU bc breaks long numbers otherwise
export LC_ALL BC_LINE_LENGTH

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
	echo "usage: sh recompute.sh usage.csv [tariffs.csv]" >&2
	exit 2
fi
usage=$1
tariffs=${2:-$(dirname "$0")/records/tariffs.csv}
for tool in awk bc sort paste; do
	command -v "$tool" >/dev/null || { echo "recompute.sh needs $tool" >&2; exit 2; }
done
for file in "$usage" "$tariffs"; do
	[ -r "$file" ] || { echo "recompute.sh cannot read $file" >&2; exit 1; }
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# What both files need: fields of CSV, and numbers as integers. Texts are compared with "" appended: awk compares what looks like numbers
# as numbers otherwise, and 1e3 is not 1000 here.
cat >"$work/common.awk" <<'AWK'
# split_csv puts the fields of a line into f and returns how many there are, or 0 if a quote is amiss.
function split_csv(line, f,    n, i) {
	if (index(line, "\"") == 0) return split(line, f, ",")
	n = 0
	for (;;) {
		n++
		if (substr(line, 1, 1) == "\"") {
			line = substr(line, 2)
			f[n] = ""
			for (;;) {
				i = index(line, "\"")
				if (i == 0) return 0
				f[n] = f[n] substr(line, 1, i - 1)
				line = substr(line, i + 1)
				if (substr(line, 1, 1) != "\"") break
				f[n] = f[n] "\""
				line = substr(line, 2)
			}
			if (line == "") return n
			if (substr(line, 1, 1) != ",") return 0
			line = substr(line, 2)
		} else {
			i = index(line, ",")
			f[n] = i ? substr(line, 1, i - 1) : line
			if (index(f[n], "\"")) return 0
			if (!i) return n
			line = substr(line, i + 1)
		}
	}
}

# plain removes the apostrophe before a text that a spreadsheet could take for a formula.
function plain(s) {
	return s ~ /^'([=+@-]|\357\274[\235\213\215\240])/ ? substr(s, 2) : s
}

# columns reads the header and puts the place of each name into at.
function columns(what, line, names, at,    f, want, n, m, i, j) {
	m = split(names, want, ",")
	n = split_csv(line, f)
	for (i = 1; i <= m; i++) {
		for (j = 1; j <= n; j++) if (f[j] "" == want[i] "") at[want[i]] = j
		if (!(want[i] in at)) {
			print "the header of the " what " lacks the column " want[i] >"/dev/stderr"
			failed = 1
			exit 1
		}
	}
	return n
}

# nano returns a number in units of 10^-9 as text, or nothing if it is not between 0 and 10^12 with at most 9 decimals.
function nano(number,    i, whole, decimals) {
	if (number !~ /^[0-9]+$/ && number !~ /^[0-9]+\.[0-9]+$/) return ""
	i = index(number, ".")
	whole = i ? substr(number, 1, i - 1) : number
	decimals = i ? substr(number, i + 1) : ""
	if (length(decimals) > 9) return ""
	while (length(decimals) < 9) decimals = decimals "0"
	sub(/^0+/, "", whole)
	if (length(whole) > 13) return ""
	if (length(whole) == 13 && whole decimals "" > "1000000000000000000000" "") return ""
	number = whole decimals
	sub(/^0+/, "", number)
	return number == "" ? "0" : number
}

# text reports whether a text has 1 to 64 characters of UTF-8, and no space at its ends.
function text(s,    continued) {
	if (s == "" || s ~ /^ / || s ~ / $/) return 0
	continued = s
	return length(s) - gsub(/[\200-\277]/, "", continued) <= 64
}

# usable reports whether a line, without its end, is UTF-8 without control characters and not too long.
function usable(line) {
	if (length(line) > 65535 || line ~ /[\001-\037\177]/) return 0
	if (line !~ /[\200-\377]/) return 1
	gsub(/[\302-\337][\200-\277]/, "", line)
	gsub(/\340[\240-\277][\200-\277]|[\341-\354\356\357][\200-\277][\200-\277]|\355[\200-\237][\200-\277]/, "", line)
	gsub(/\360[\220-\277][\200-\277][\200-\277]|[\361-\363][\200-\277][\200-\277][\200-\277]|\364[\200-\217][\200-\277][\200-\277]/, "", line)
	return line !~ /[\200-\377]/
}

# chomp returns a line without its end, and without a BOM if it is the first.
function chomp(line, number) {
	sub(/\r$/, "", line)
	if (number == 1) sub(/^\357\273\277/, "", line)
	return line
}
AWK

# Bytes NUL become control characters first: not every awk reads past them.
tr '\000' '\001' <"$tariffs" >"$work/tariffs.csv"
tr '\000' '\001' <"$usage" >"$work/usage.csv"

# The records of known tariffs: id, line, account, tariff, currency, digits, quantity, price.
cat >"$work/records.awk" <<'AWK'
# digits returns the decimals of a currency.
function digits(currency) {
	if (currency ~ /^(BIF|CLP|DJF|GNF|ISK|JPY|KMF|KRW|PYG|RWF|UGX|UYI|VND|VUV|XAF|XOF|XPF)$/) return 0
	if (currency ~ /^(BHD|IQD|JOD|KWD|LYD|OMR|TND)$/) return 3
	if (currency ~ /^(CLF|UYW)$/) return 4
	return 2
}

# day returns the day of an instant in UTC, counted from some day in the past.
function day(time,    y, m, d, minutes, zone) {
	if (time !~ /^[0-9][0-9][0-9][0-9]-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9](\.[0-9]+)?(Z|[+-][0-2][0-9]:[0-5][0-9])$/) return ""
	y = substr(time, 1, 4) + 0
	m = substr(time, 6, 2) + 0
	d = substr(time, 9, 2) + 0
	minutes = substr(time, 12, 2) * 60 + substr(time, 15, 2)
	if (m < 1 || m > 12 || d < 1 || d > length_of_month(y, m) || minutes >= 1440) return ""
	if (time !~ /Z$/) {
		zone = substr(time, length(time) - 5)
		if (substr(zone, 2, 2) > 23) return ""
		zone = (substr(zone, 2, 2) * 60 + substr(zone, 5, 2)) * (zone ~ /^-/ ? -1 : 1)
		minutes -= zone
	}
	# Months count from March, so that the leap day is the last of a year.
	if (m < 3) { y--; m += 12 }
	d += 365 * y + int(y / 4) - int(y / 100) + int(y / 400) + int((153 * (m - 3) + 2) / 5)
	if (minutes < 0) d--
	if (minutes >= 1440) d++
	return d < first_day || d > last_day ? "" : d
}

function length_of_month(y, m) {
	if (m == 2) return y % 4 == 0 && (y % 100 != 0 || y % 400 == 0) ? 29 : 28
	return m == 4 || m == 6 || m == 9 || m == 11 ? 30 : 31
}

BEGIN {
	first_day = 0; last_day = 9999999
	first_day = day("1970-01-01T00:00:00Z")
	last_day = day("9999-12-31T00:00:00Z")
	OFS = "\t"
	header = 0
	for (n = 1; (getline line < tariffs) > 0; n++) {
		line = chomp(line, n)
		if (line == "") continue
		if (!header) { header = columns("tariffs", line, "tariff,unit,currency,price", at); continue }
		if (!usable(line) || split_csv(line, f) != header) continue
		for (i in f) f[i] = plain(f[i])
		id = f[at["tariff"]] ""
		p = nano(f[at["price"]])
		if (!text(id) || !text(f[at["unit"]]) || f[at["currency"]] !~ /^[A-Z][A-Z][A-Z]$/ || p == "" || id in price) continue
		price[id] = p
		currency[id] = f[at["currency"]]
	}
	header = 0
}

{
	line = chomp($0, NR)
	if (line == "") next
	if (!header) { header = columns("usage file", line, "id,time,account,tariff,quantity", place); next }
	if (!usable(line) || split_csv(line, f) != header) next
	for (i in f) f[i] = plain(f[i])
	id = f[place["id"]]; account = f[place["account"]]; tariff = f[place["tariff"]] ""
	today = day(f[place["time"]])
	quantity = nano(f[place["quantity"]])
	if (!text(id) || today == "" || !text(account) || !text(tariff) || quantity == "") next
	if (tariff in price) print id, NR, account, tariff, currency[tariff], digits(currency[tariff]), quantity, price[tariff]
}

END { if (!failed && !header) { print "the usage file is empty" >"/dev/stderr"; exit 1 } }
AWK
awk -v tariffs="$work/tariffs.csv" -f "$work/common.awk" -f "$work/records.awk" "$work/usage.csv" >"$work/records"

# The first record of each id, then those of an account and a tariff together.
tab=$(printf '\t')
sort -t "$tab" -k1,1 -k2,2n "$work/records" >"$work/by-id"
awk -F '\t' '$1 "" != last ""; { last = $1 }' "$work/by-id" >"$work/charged"
sort -t "$tab" -k3,3 -k4,4 "$work/charged" >"$work/sorted"

# One line for each account and tariff, and a program for bc that prints records, quantity and amount of each.
awk -F '\t' -v keys="$work/keys" '
	BEGIN {
		# r divides by d and rounds half to even.
		print "scale=0"
		print "define r(n,d){"
		print "auto q,m"
		print "q=n/d"
		print "m=2*(n%d)"
		print "if(m>d){q=q+1}"
		print "if(m==d){q=q+q%2}"
		print "return(q)"
		print "}"
		printf "" >keys
	}
	{
		key = $3 FS $4 FS $5 FS $6
		if (NR > 1 && key "" != last "") finish()
		last = key
		unit = "1"
		for (i = $6; i < 18; i++) unit = unit "0"
		print "c=c+1;s=s+" $7 ";a=a+r(" $7 "*" $8 "," unit ")"
	}
	function finish() { print last >keys; print "c;s;a;c=0;s=0;a=0" }
	END { if (NR > 0) finish() }
' "$work/sorted" >"$work/program"
bc "$work/program" </dev/null >"$work/sums"

# Integers become decimals again.
echo "account,tariff,currency,records,quantity,amount"
paste - - - <"$work/sums" >"$work/rows"
paste "$work/keys" "$work/rows" >"$work/totals"
awk -F '\t' '
	function decimal(n, digits,    whole) {
		if (digits == 0) return n
		while (length(n) <= digits) n = "0" n
		whole = substr(n, 1, length(n) - digits)
		return whole "." substr(n, length(n) - digits + 1)
	}
	function field(s) {
		if (s ~ /^([=+@-]|\357\274[\235\213\215\240])/) s = sprintf("%c", 39) s
		if (index(s, ",") == 0 && index(s, "\"") == 0) return s
		gsub(/"/, "\"\"", s)
		return "\"" s "\""
	}
	{
		quantity = decimal($6 "", 9)
		sub(/0+$/, "", quantity)
		sub(/\.$/, "", quantity)
		print field($1) "," field($2) "," $3 "," $5 "," quantity "," decimal($7 "", $4 + 0)
	}
' "$work/totals"
