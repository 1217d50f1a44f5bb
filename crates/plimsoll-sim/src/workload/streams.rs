//! When a file says that proofs arrive.

use toml::Spanned;

use super::check::{Checked, PROOFS_MAX, Source, in_range};
use super::file::{ArrivalsTable, File};
use super::values::Time;
use super::{Arrivals, Circuit, Stream};
use crate::Nanos;

const ONE_WAY: &str = "say it in one way: batch = true, closed_loop, poisson, every or at";

/// All streams of a file. A circuit that no proof is asked of is a slip: it would change nothing.
pub(super) fn streams(raw: &File, circuits: &[Circuit], source: &Source<'_>) -> Checked<Vec<Stream>> {
    let streams: Vec<Stream> =
        raw.arrivals.iter().map(|table| stream(table, circuits, source)).collect::<Checked<_>>()?;
    match (0..circuits.len()).find(|circuit| streams.iter().all(|stream| stream.circuit != *circuit)) {
        None => Ok(streams),
        Some(at) => {
            let name = &raw.circuit.get_ref()[at].name;
            let fault = format!("it is not said when proofs of {:?} arrive", name.get_ref());
            Err(source.error(
                name,
                fault,
                format!("add [[arrivals]] with circuit = {:?}, or delete the circuit", name.get_ref()),
            ))
        }
    }
}

fn stream(table: &ArrivalsTable, circuits: &[Circuit], source: &Source<'_>) -> Checked<Stream> {
    let name = &table.circuit;
    let Some(circuit) = circuits.iter().position(|circuit| *circuit.name == **name.get_ref()) else {
        let names: Vec<_> = circuits.iter().map(|circuit| &*circuit.name).collect();
        let fault = format!("there is no circuit {:?}", name.get_ref());
        return Err(source.error(name, fault, format!("name one of [{}]", names.join(", "))));
    };
    let ArrivalsTable { batch, closed_loop, poisson, every, at, .. } = table;
    let positive = |at: &Spanned<Time>| match at.get_ref().0 {
        Nanos(0) => Err(source.error(at, "no time between two arrivals", "write batch = true for all at once")),
        time => Ok(time),
    };
    let mut said = Vec::new();
    if batch == &Some(true) {
        said.push(Arrivals::Batch);
    }
    if let Some(at) = closed_loop {
        said.push(Arrivals::ClosedLoop(in_range(at, "closed_loop", 1, PROOFS_MAX, source)?));
    }
    if let Some(at) = poisson {
        said.push(Arrivals::Poisson(positive(at)?));
    }
    if let Some(at) = every {
        said.push(Arrivals::Every(positive(at)?));
    }
    if let Some(times) = at {
        said.push(Arrivals::At(listed(times, source)?));
    }
    let arrivals = match said.len() {
        1 => said.remove(0),
        0 => return Err(source.error(name, "it is not said when these proofs arrive", ONE_WAY)),
        _ => return Err(source.error(name, "it is said in several ways when these proofs arrive", ONE_WAY)),
    };
    let proofs = match (&table.proofs, &arrivals) {
        (Some(at), Arrivals::At(times)) if *at.get_ref() != times.len() as u64 => {
            let fault = format!("{} proofs, and {} times at which they arrive", at.get_ref(), times.len());
            return Err(source.error(at, fault, "delete proofs: each time is one proof's"));
        }
        (Some(at), _) => in_range(at, "proofs", 1, PROOFS_MAX, source)?,
        (None, Arrivals::At(times)) => times.len() as u64,
        (None, Arrivals::ClosedLoop(jobs)) => *jobs,
        (None, _) => 20,
    };
    Ok(Stream { circuit, arrivals, proofs })
}

/// The times of a list, which says some, in their order.
fn listed(times: &Spanned<Vec<Spanned<Time>>>, source: &Source<'_>) -> Checked<Vec<Nanos>> {
    let list = times.get_ref();
    if list.is_empty() {
        return Err(source.error(
            times,
            "a list of no times",
            "write one for each proof, for example at = [\"0 s\", \"1 min\"]",
        ));
    }
    if let Some(pair) = list.windows(2).find(|pair| pair[1].get_ref().0 < pair[0].get_ref().0) {
        let (one, two) = (pair[0].get_ref().0, pair[1].get_ref().0);
        let fault = format!("{two} comes after {one} in the list");
        return Err(source.error(&pair[1], fault, "write the times in their order"));
    }
    Ok(list.iter().map(|time| time.get_ref().0).collect())
}
