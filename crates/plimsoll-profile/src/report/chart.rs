//! One chart: shapes in a frame, drawn as SVG by `plotters`.
//!
//! Colours of the frame are constants, which the page's style sheet replaces in the dark (`page.css`).

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// What is drawn in: lines and letters. The style sheet knows this colour.
pub(super) const INK: RGBColor = RGBColor(0x1A, 0x1A, 0x1A);
const GRID: RGBColor = RGBColor(0xD9, 0xD9, 0xD9);
const PAPER: RGBColor = RGBColor(0xFF, 0xFF, 0xFF);
/// The line that must not be crossed.
pub(super) const ALARM: RGBColor = RGBColor(0xD6, 0x27, 0x28);
/// What has no colour of its own.
pub(super) const GREY: RGBColor = RGBColor(0x9A, 0x9A, 0x9A);

/// Told apart by most people on white and on black.
const PALETTE: [RGBColor; 10] = [
    RGBColor(0x3B, 0x82, 0xC4),
    RGBColor(0xE6, 0x8A, 0x00),
    RGBColor(0x2C, 0xA0, 0x7A),
    RGBColor(0xC4, 0x6B, 0xA8),
    RGBColor(0x8C, 0x6B, 0x4F),
    RGBColor(0x56, 0xB4, 0xE9),
    RGBColor(0xB8, 0xA9, 0x1F),
    RGBColor(0x7A, 0x6F, 0xC9),
    RGBColor(0x5E, 0x9E, 0x3A),
    RGBColor(0xD8, 0x7C, 0x6A),
];

/// A colour for the n-th of several things.
pub(super) fn colour(n: usize) -> RGBColor {
    PALETTE[n % PALETTE.len()]
}

/// How large a chart is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// For a screen or a document: 960 units wide.
    Wide,
    /// For a phone: 400 units wide, so that letters stay readable.
    Narrow,
}

impl Size {
    fn width(self) -> u32 {
        match self {
            Size::Wide => 960,
            Size::Narrow => 400,
        }
    }

    /// How many steps of a series can be told apart.
    pub(super) fn columns(self) -> usize {
        match self {
            Size::Wide => 400,
            Size::Narrow => 160,
        }
    }

    fn letters_in(self, pixels: u32) -> usize {
        (pixels / 7) as usize
    }
}

/// Something in a chart, in the chart's own units.
#[derive(Clone, Debug)]
pub(super) enum Shape {
    /// A filled outline.
    Area(Vec<(f64, f64)>, RGBColor),
    /// A line.
    Line { points: Vec<(f64, f64)>, colour: RGBColor, width: u32, dashed: bool },
    /// A box from one corner to the other. `faint` is what waits.
    Box { from: (f64, f64), to: (f64, f64), colour: RGBColor, faint: bool },
}

/// A chart that has not been drawn yet.
#[derive(Clone, Debug, Default)]
pub struct Chart {
    pub(super) x: (f64, f64),
    pub(super) y_max: f64,
    pub(super) x_unit: String,
    pub(super) y_unit: String,
    /// Names of rows, from the top; without them the vertical axis has numbers.
    pub(super) rows: Vec<String>,
    pub(super) legend: Vec<(String, RGBColor)>,
    pub(super) shapes: Vec<Shape>,
}

impl Chart {
    /// Lines through points: each with a name. For curves such as time against budget.
    pub fn lines(x_unit: &str, y_unit: &str, series: &[(&str, Vec<(f64, f64)>)]) -> Chart {
        let points =
            || series.iter().flat_map(|line| &line.1).filter(|point| point.0.is_finite() && point.1.is_finite());
        let low = points().map(|point| point.0).fold(f64::INFINITY, f64::min);
        let high = points().map(|point| point.0).fold(f64::NEG_INFINITY, f64::max);
        let shapes = series.iter().enumerate().map(|(n, (_, points))| {
            let points = points.iter().copied().filter(|point| point.0.is_finite() && point.1.is_finite()).collect();
            Shape::Line { points, colour: colour(n), width: 2, dashed: false }
        });
        Chart {
            x: if low < high { (low, high) } else { (0.0, 1.0) },
            y_max: points().map(|point| point.1).fold(0.0, f64::max),
            x_unit: x_unit.to_owned(),
            y_unit: y_unit.to_owned(),
            rows: Vec::new(),
            legend: series.iter().enumerate().map(|(n, line)| (line.0.to_owned(), colour(n))).collect(),
            shapes: shapes.collect(),
        }
    }

    /// The chart as SVG. Whatever is written in it is escaped.
    pub fn svg(&self, size: Size) -> String {
        let mut text = String::new();
        // The only thing that can fail here is writing, and a string takes everything.
        self.draw(size, &mut text).expect("drawing into a string");
        // The frame's size is its view box; how large it is shown is the page's to say.
        text
    }

    fn draw(&self, size: Size, text: &mut String) -> Result<(), Box<dyn std::error::Error>> {
        let width = size.width();
        let letters = 13;
        let margin = match (self.rows.is_empty(), size) {
            (true, Size::Wide) => 66,
            (true, Size::Narrow) => 58,
            (false, Size::Wide) => 170,
            (false, Size::Narrow) => 104,
        };
        let legend = self.place_legend(width);
        let legend_height = legend.last().map_or(0, |entry| entry.1 + 20);
        let plot_height = match (self.rows.len(), size) {
            (0, Size::Wide) => 260,
            (0, Size::Narrow) => 220,
            (rows, _) => (rows as u32 * 18).max(36),
        };
        let height = legend_height + plot_height + 36;
        let backend = SVGBackend::with_string(text, (width, height));
        let root = backend.into_drawing_area();
        root.fill(&PAPER)?;
        let font = ("sans-serif", letters).into_font().color(&INK);
        for ((name, colour), &(x, y)) in self.legend.iter().zip(&legend) {
            let (x, y) = (x as i32, y as i32);
            root.draw(&Rectangle::new([(x, y + 4), (x + 11, y + 15)], colour.filled()))?;
            let left = font.clone().pos(Pos::new(HPos::Left, VPos::Center));
            root.draw(&Text::new(shorten(name, LEGEND_LETTERS), (x + 16, y + 10), left))?;
        }
        let y_max = if self.y_max > 0.0 { self.y_max * if self.rows.is_empty() { 1.05 } else { 1.0 } } else { 1.0 };
        let x_max = if self.x.1 > self.x.0 { self.x.1 } else { self.x.0 + 1.0 };
        let mut chart = ChartBuilder::on(&root)
            .margin_top(legend_height as i32 + 6)
            .margin_right(16)
            .x_label_area_size(28)
            .y_label_area_size(margin)
            .build_cartesian_2d(self.x.0..x_max, 0.0..y_max)?;
        let by_rows = !self.rows.is_empty();
        let (x_unit, y_unit) = (&self.x_unit, &self.y_unit);
        let x_label = |x: &f64| format!("{} {x_unit}", short(*x));
        let y_label =
            |y: &f64| if by_rows { String::new() } else { format!("{} {y_unit}", short(*y)).trim_end().to_owned() };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(if by_rows { GRID.mix(0.0) } else { GRID.mix(1.0) })
            .axis_style(GRID)
            .x_labels(if size == Size::Wide { 8 } else { 4 })
            .y_labels(if by_rows { 1 } else { 5 })
            .x_label_formatter(&x_label)
            .y_label_formatter(&y_label)
            .label_style(font.clone())
            .draw()?;
        for shape in &self.shapes {
            match shape {
                Shape::Area(points, colour) => {
                    chart.draw_series([Polygon::new(points.clone(), colour.mix(0.85).filled())])?;
                }
                Shape::Line { points, colour, width, dashed: false } => {
                    chart.draw_series([PathElement::new(points.clone(), colour.stroke_width(*width))])?;
                }
                Shape::Line { points, colour, width, dashed: true } => {
                    let style = colour.stroke_width(*width);
                    chart.draw_series(DashedLineSeries::new(points.clone(), 6, 4, style))?;
                }
                Shape::Box { from, to, colour, faint } => {
                    let style = if *faint { colour.mix(0.25).filled() } else { colour.mix(0.9).filled() };
                    chart.draw_series([Rectangle::new([*from, *to], style)])?;
                }
            }
        }
        let rows = self.rows.len() as f64;
        for (row, name) in self.rows.iter().enumerate() {
            let y = y_max * (rows - row as f64 - 0.5) / rows;
            let (x, y) = chart.backend_coord(&(self.x.0, y));
            let right = font.clone().pos(Pos::new(HPos::Right, VPos::Center));
            root.draw(&Text::new(shorten(name, size.letters_in(margin - 8)), (x - 6, y), right))?;
        }
        root.present()?;
        Ok(())
    }

    /// Where each entry of the legend goes; as many lines as are needed.
    fn place_legend(&self, width: u32) -> Vec<(u32, u32)> {
        let (mut x, mut y) = (8, 0);
        let place = |entry: &(String, RGBColor)| {
            let length = 16 + 14 + 7 * entry.0.chars().count().min(LEGEND_LETTERS) as u32;
            if x > 8 && x + length > width {
                (x, y) = (8, y + 20);
            }
            let at = (x, y);
            x += length;
            at
        };
        self.legend.iter().map(place).collect()
    }
}

const LEGEND_LETTERS: usize = 40;

/// At most so many letters. Characters that mislead, or that XML has no place for, become spaces.
fn shorten(name: &str, letters: usize) -> String {
    let letters = letters.max(4);
    let clean: Vec<char> = name.chars().map(|c| if super::misleads(c) { ' ' } else { c }).collect();
    if clean.len() <= letters {
        return clean.into_iter().collect();
    }
    // Names of jobs differ at their ends.
    let tail = letters / 2;
    let (head, tail) = (&clean[..letters - 1 - tail], &clean[clean.len() - tail..]);
    head.iter().chain(&['…']).chain(tail).collect()
}

/// A number with as many digits as are needed on an axis.
fn short(value: f64) -> String {
    let text = match value.abs() {
        magnitude if magnitude >= 100.0 || magnitude == 0.0 => format!("{value:.0}"),
        magnitude if magnitude >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    };
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}
