//! What happened, as a page to look at.
//!
//! [`html`] makes one file of a [`Timeline`] that needs nothing else: no network, no script. It can be read on a phone (each
//! picture is there twice, once with fewer and larger things in it), in the light and in the dark. [`svg`] gives the pictures
//! alone. [`Page`] is for those who have more to show, such as curves of their own.
//!
//! Names of jobs, classes and stages are chosen by users: whatever goes into a page is escaped, and there is no way into it
//! past [`Text`].

mod chart;
mod pictures;
mod tables;
pub(crate) mod units;

use std::fmt::{self, Write};

use serde::Serialize;

pub use self::chart::{Chart, Size};
pub use self::pictures::Picture;
use crate::timeline::Timeline;

/// What was found out about a run: in words.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Findings {
    /// The verdict, in a word: `Healthy`, `Backlog`.
    pub verdict: String,
    /// It in a sentence.
    pub headline: String,
    /// The numbers that it rests on.
    pub evidence: Vec<String>,
    /// What to do about it.
    pub next_step: Vec<String>,
    /// Something is wrong.
    pub alarm: bool,
}

/// A text that is escaped when it is printed: for the content of elements and for attributes in double quotes.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a>(pub &'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '&' => f.write_str("&amp;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                c if misleads(c) => f.write_char(' ')?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// Control characters, and those that turn the direction of what follows, which could make one name look like another.
fn misleads(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A page that is being put together.
#[derive(Clone, Debug)]
pub struct Page {
    title: String,
    body: String,
}

impl Page {
    /// An empty page.
    pub fn new(title: &str) -> Page {
        Page { title: title.to_owned(), body: format!("<h1>{}</h1>\n", Text(title)) }
    }

    /// What was found out, where it is seen first.
    #[must_use]
    pub fn findings(mut self, findings: &Findings) -> Page {
        let Findings { verdict, headline, evidence, next_step, alarm } = findings;
        let class = if *alarm { "verdict alarm" } else { "verdict good" };
        let _ = writeln!(self.body, "<section class=\"{class}\"><h2>{}</h2><p>{}</p>", Text(verdict), Text(headline));
        self.list("Why", evidence);
        self.list("What to do", next_step);
        self.body.push_str("</section>\n");
        self
    }

    fn list(&mut self, title: &str, items: &[String]) {
        if items.is_empty() {
            return;
        }
        let _ = write!(self.body, "<h3>{}</h3><ul>", Text(title));
        for item in items {
            let _ = write!(self.body, "<li>{}</li>", Text(item));
        }
        self.body.push_str("</ul>\n");
    }

    /// A heading.
    #[must_use]
    pub fn heading(mut self, text: &str) -> Page {
        let _ = writeln!(self.body, "<h2>{}</h2>", Text(text));
        self
    }

    /// A paragraph.
    #[must_use]
    pub fn paragraph(mut self, text: &str) -> Page {
        let _ = writeln!(self.body, "<p>{}</p>", Text(text));
        self
    }

    /// A chart, with a title and a sentence on how to read it.
    #[must_use]
    pub fn chart(self, title: &str, caption: &str, chart: &Chart) -> Page {
        self.picture(&Picture {
            key: String::new(),
            title: title.to_owned(),
            caption: caption.to_owned(),
            chart: pictures::Both::same(chart.clone()),
        })
    }

    /// A picture of a timeline.
    #[must_use]
    pub fn picture(mut self, picture: &Picture) -> Page {
        let Picture { title, caption, .. } = picture;
        let _ = writeln!(self.body, "<figure role=\"group\" aria-label=\"{}\"><h2>{}</h2>", Text(title), Text(title));
        for (size, class) in [(Size::Wide, "wide"), (Size::Narrow, "narrow")] {
            let svg = picture.svg(size);
            // Its size is the page's to say; the view box keeps the proportions.
            let svg =
                svg.trim_start().trim_start_matches("<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"no\"?>");
            let _ = writeln!(self.body, "<div class=\"{class}\">{svg}</div>");
        }
        let _ = writeln!(self.body, "<figcaption>{}</figcaption></figure>", Text(caption));
        self
    }

    /// A table: the first column is text, the others are numbers. On a narrow screen it scrolls by itself.
    #[must_use]
    pub fn table(mut self, title: &str, columns: &[&str], rows: &[Vec<String>]) -> Page {
        if rows.is_empty() {
            return self;
        }
        let _ = write!(self.body, "<h2>{}</h2>\n<div class=\"table\"><table><thead><tr>", Text(title));
        for column in columns {
            let _ = write!(self.body, "<th scope=\"col\">{}</th>", Text(column));
        }
        self.body.push_str("</tr></thead><tbody>\n");
        for row in rows {
            self.body.push_str("<tr>");
            for cell in row {
                let _ = write!(self.body, "<td>{}</td>", Text(cell));
            }
            self.body.push_str("</tr>\n");
        }
        self.body.push_str("</tbody></table></div>\n");
        self
    }

    /// Everything that there is to say about a timeline.
    #[must_use]
    pub fn timeline(mut self, timeline: &Timeline) -> Page {
        self.body.push_str("<section class=\"story\">");
        self.list("What happened", &tables::story(timeline));
        self.body.push_str("</section>\n");
        pictures::pictures(timeline).iter().fold(self, Page::picture).tables(timeline)
    }

    fn tables(mut self, timeline: &Timeline) -> Page {
        for table in tables::tables(timeline) {
            self = self.table(&table.title, &table.columns, &table.rows);
        }
        self
    }

    /// The page as one file.
    pub fn html(&self) -> String {
        let Page { title, body } = self;
        let mut page = String::with_capacity(body.len() + STYLE.len() + 1024);
        // Nothing is loaded and nothing runs, whatever a name may try.
        let _ = write!(
            page,
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta http-equiv=\"Content-Security-Policy\" \
             content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n<meta name=\"viewport\" \
             content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n<link \
             rel=\"icon\" href=\"data:,\">\n<title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{body}\
             </main>\n</body>\n</html>\n",
            Text(title)
        );
        page
    }
}

const STYLE: &str = include_str!("report/page.css");

/// A page about a timeline.
pub fn html(timeline: &Timeline, title: &str, findings: Option<&Findings>) -> String {
    let page = Page::new(title);
    let page = match findings {
        Some(findings) => page.findings(findings),
        None => page,
    };
    page.timeline(timeline).html()
}

/// The pictures of a timeline. [`Picture::svg`] draws each.
pub fn svg(timeline: &Timeline) -> Vec<Picture> {
    pictures::pictures(timeline)
}

#[cfg(test)]
mod tests;
