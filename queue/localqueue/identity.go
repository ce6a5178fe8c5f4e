package localqueue

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"

	"github.com/millrace/millrace/internal/naming"
	"github.com/millrace/millrace/queue"
)

// identity derives message ids and receipts by encrypting (ordinal of the queue, number
// within the queue). A block cipher is a permutation, so no two collide, and without the
// key none can be guessed from another.
type identity struct {
	ids      cipher.Block
	receipts cipher.Block
}

// newSecret derives a secret from the seed, or draws a random one if the seed is 0.
func newSecret(seed uint64) (secret [32]byte) {
	if seed == 0 {
		rand.Read(secret[:]) // never fails, see crypto/rand
		return secret
	}
	return sha256.Sum256(binary.BigEndian.AppendUint64([]byte("millrace localqueue"), seed))
}

func newIdentity(secret [32]byte) identity {
	return identity{ids: newCipher(secret[:16]), receipts: newCipher(secret[16:])}
}

func newCipher(key []byte) cipher.Block {
	b, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // only if the key does not have 16, 24 or 32 bytes
	}
	return b
}

// id returns the id of a queue's message, in the form of a GUID.
func (i identity) id(queueOrdinal, sequence uint64) queue.ID {
	return queue.ID(naming.FormatGUID(encrypt(i.ids, queueOrdinal, sequence)))
}

// sequence is the inverse of id: the sequence of the message with that id. False means that
// no message of the queue ever had it.
func (i identity) sequence(id queue.ID, queueOrdinal uint64) (uint64, bool) {
	b, ok := naming.ParseGUID(string(id)) // ids are case-sensitive, and so is Parse
	if !ok {
		return 0, false
	}
	i.ids.Decrypt(b[:], b[:])
	return binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[:8]) == queueOrdinal
}

// receiptLen is 16 bytes in padded standard Base64. Like the service's receipts, ours
// contain +, / and =, which clients must escape.
const receiptLen = 24

func (i identity) receipt(queueOrdinal, n uint64) queue.Receipt {
	s := i.encoded(queueOrdinal, n)
	return queue.Receipt(s[:])
}

func (i identity) matches(r queue.Receipt, queueOrdinal, n uint64) bool {
	s := i.encoded(queueOrdinal, n)
	return len(r) == receiptLen && subtle.ConstantTimeCompare([]byte(r), s[:]) == 1
}

func (i identity) encoded(queueOrdinal, n uint64) (s [receiptLen]byte) {
	b := encrypt(i.receipts, queueOrdinal, n)
	base64.StdEncoding.Encode(s[:], b[:])
	return s
}

func encrypt(key cipher.Block, high, low uint64) [16]byte {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], high)
	binary.BigEndian.PutUint64(b[8:], low)
	key.Encrypt(b[:], b[:])
	return b
}
