//! Texts of others on a terminal.

use std::borrow::Cow;

/// A text without what a terminal would take for a command: names in traces and recordings are a user's, and a recording may be anybody's.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    // What turns the direction of writing shows one thing and says another.
    let odd = |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if !text.contains(odd) {
        return Cow::Borrowed(text);
    }
    let shown = text.chars().map(|c| if odd(c) { c.escape_default().to_string() } else { c.to_string() });
    Cow::Owned(shown.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_a_terminal_but_text() {
        assert_eq!(plain("prove \"x\" ü 証"), "prove \"x\" ü 証");
        assert_eq!(plain("a\u{1b}[2Jb\r\n\u{9b}c\u{202e}"), "a\\u{1b}[2Jb\\r\\n\\u{9b}c\\u{202e}");
    }
}
