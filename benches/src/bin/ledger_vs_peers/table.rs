//! Results as a table for people, or as one JSON object a line.

/// One case's results: a row per peer or size.
pub(crate) struct Table {
    case: String,
    columns: Vec<&'static str>,
    rows: Vec<(String, Vec<f64>)>,
}

impl Table {
    pub(crate) fn new(case: impl Into<String>, columns: &[&'static str]) -> Table {
        Table { case: case.into(), columns: columns.to_vec(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, name: impl Into<String>, values: &[f64]) {
        assert_eq!(values.len(), self.columns.len(), "a value for each column");
        self.rows.push((name.into(), values.to_vec()));
    }

    /// Adds a column: each row's value of the first column over that of the row `of`.
    pub(crate) fn ratio_to(&mut self, of: &str) {
        let Some(base) = self.rows.iter().find(|row| row.0 == of).map(|row| row.1[0]) else { return };
        self.columns.push("ratio");
        for (_, values) in &mut self.rows {
            values.push(values[0] / base);
        }
    }

    pub(crate) fn print(&self) {
        println!("\n{}", self.case);
        print!("  {:<44}", "");
        self.columns.iter().for_each(|column| print!(" {column:>18}"));
        println!();
        for (name, values) in &self.rows {
            print!("  {name:<44}");
            for value in values {
                match *value {
                    value if value.is_nan() => print!(" {:>18}", "-"),
                    value if value.abs() >= 1000.0 => print!(" {value:>18.0}"),
                    value => print!(" {value:>18.2}"),
                }
            }
            println!();
        }
    }

    pub(crate) fn print_json(&self) {
        for (name, values) in &self.rows {
            let number = |value: &f64| if value.is_finite() { format!("{value}") } else { "null".into() };
            let cells: Vec<String> = self
                .columns
                .iter()
                .zip(values)
                .map(|(column, value)| format!("{column:?}:{}", number(value)))
                .collect();
            println!("{{\"case\":{:?},\"row\":{name:?},{}}}", self.case, cells.join(","));
        }
    }
}

/// The median.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The value that this share of all values does not exceed.
pub(crate) fn percentile(sorted: &[f64], share: f64) -> f64 {
    let at = (sorted.len() as f64 * share) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}
