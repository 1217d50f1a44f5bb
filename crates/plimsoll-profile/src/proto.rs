//! Writing protocol buffers, as far as profiles and traces need it.

/// A message of protocol buffers, as far as it is written.
#[derive(Debug, Default)]
pub(crate) struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    pub(crate) fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn message(&mut self, field: u64, message: Message) {
        self.bytes(field, &message.0);
    }

    pub(crate) fn nested(mut self, field: u64, message: Message) -> Message {
        self.message(field, message);
        self
    }

    pub(crate) fn number(mut self, field: u64, value: u64) -> Message {
        self.varint(field << 3);
        self.varint(value);
        self
    }

    pub(crate) fn text(mut self, field: u64, text: &str) -> Message {
        self.bytes(field, text.as_bytes());
        self
    }

    /// A number of fixed length.
    pub(crate) fn fixed(mut self, field: u64, value: u64) -> Message {
        self.varint(field << 3 | 1);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(crate) fn append(&mut self, other: &Message) {
        self.0.extend_from_slice(&other.0);
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn packed(mut self, field: u64, values: &[u64]) -> Message {
        let mut packed = Message::default();
        values.iter().for_each(|value| packed.varint(*value));
        self.message(field, packed);
        self
    }
}
