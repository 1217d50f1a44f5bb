//! The cards on which a run makes whole proofs: the key stays there, and what is under way follows from the budget of each.
//!
//! A program without CUDA has none. With it, all that the driver shows are used (`CUDA_VISIBLE_DEVICES` says which it shows), each
//! with a budget of its own on the run's one ledger. A card that is lost on the way gives its proofs to the others.

use plimsoll::pipeline::{Pipeline, Rejection};
use plimsoll::pool::Pool;
use plimsoll::{Budget, Bytes, Grant, Ledger, Profile};
use plimsoll_groth16::footprint::Footprint;
use plimsoll_groth16::prover::{Openings, ProveError, Prover, Witness};
use plimsoll_groth16::r1cs::R1cs;

/// The cards of a run; none if a backend computes.
#[derive(Clone, Debug, Default)]
pub struct Cards {
    #[cfg(feature = "cuda")]
    drivers: Vec<plimsoll_cuda::CudaDriver>,
}

/// Why there is no pipeline.
#[derive(Debug, thiserror::Error)]
pub enum PipelineError {
    /// It cannot work within its ledger.
    #[error("the pipeline was not built: {0}")]
    Rejected(#[from] Rejection),
    /// A card does not do.
    #[error("{0}")]
    Cards(String),
    /// What is held beside the proofs does not fit the ledger.
    #[error("{0}")]
    Beside(String),
}

impl Cards {
    /// Opens them all, with so many bytes of each or seven eighths of what is free there; says what they are.
    ///
    /// # Errors
    /// What is missing.
    #[cfg(feature = "cuda")]
    pub fn open(memory: Option<Bytes>) -> Result<(Self, String), String> {
        use plimsoll_cuda::error::OpenError;
        use plimsoll_cuda::{CudaDriver, device_count, properties};
        let count = device_count().map_err(|error| error.to_string())?;
        let (mut drivers, mut names) = (Vec::new(), Vec::new());
        for device in 0..count {
            let properties = properties(device).map_err(|error| error.to_string())?;
            let bytes = memory.map_or(properties.free_bytes / 8 * 7, |memory| memory.0);
            let driver = CudaDriver::open(device, bytes).map_err(|error| match (error, memory) {
                // What is asked for is there, and is not even enough to run each kernel once.
                (OpenError::OutOfMemory { .. }, Some(asked)) if asked.0 <= properties.free_bytes => {
                    format!("device {device}: {asked} is less than a device is opened with; about 95 MiB are, by --device-memory")
                }
                (error, _) => format!("device {device}: {error}"),
            })?;
            drivers.push(driver);
            names.push(format!("{}, {} of its memory", properties.name, Bytes(bytes)));
        }
        Ok((Self { drivers }, names.join("; ")))
    }

    /// Opens none.
    ///
    /// # Errors
    /// Always.
    #[cfg(not(feature = "cuda"))]
    pub fn open(_memory: Option<Bytes>) -> Result<(Self, String), String> {
        Err("this program was built without CUDA; build it with --features cuda".to_owned())
    }

    /// What one proof holds in host memory: with cards what it has until its scalars are there, otherwise what a backend needs too.
    pub fn profile(&self, footprint: &Footprint) -> Profile {
        if self.are_there() { footprint.device_profile() } else { footprint.profile() }
    }

    /// A pipeline that makes proofs on the cards, or with the prover's backend where there are none; see [`Prover::pipeline`].
    ///
    /// # Errors
    /// The budget is too small for even one proof, or a card does not do.
    pub fn pipeline<In, Beside, Out>(
        &self,
        prover: &Prover,
        ledger: &Ledger,
        pool: &Pool,
        begin: impl Fn(&Prover, &mut Grant, In) -> Result<(Witness, Beside), ProveError> + Send + Sync + 'static,
        end: impl Fn(&Prover, Openings, Beside) -> Result<Out, ProveError> + Send + Sync + 'static,
    ) -> Result<Pipeline<In, Out, ProveError>, PipelineError>
    where
        In: Clone + Send + 'static,
        Beside: Send + 'static,
        Out: Send + 'static,
    {
        #[cfg(feature = "cuda")]
        if self.are_there() {
            return self.pipeline_on_cards(prover, ledger, pool, begin, end);
        }
        Ok(prover.pipeline(ledger, pool, begin, end)?)
    }
}

#[cfg(feature = "cuda")]
impl Cards {
    fn are_there(&self) -> bool {
        !self.drivers.is_empty()
    }

    /// What all of them take of host memory, pinned: copies pass through there.
    pub fn host_memory(&self) -> Bytes {
        plimsoll_cuda::Staging::bytes(lanes()).times(self.drivers.len() as u64)
    }

    /// Adds them to a ledger's budget.
    pub fn budget(&self, budget: Budget) -> Budget {
        if !self.are_there() {
            return budget;
        }
        let budget = budget.space(plimsoll::Space::PINNED, self.host_memory());
        self.drivers
            .iter()
            .fold(budget, |budget, driver| budget.device(driver.device(), Bytes(driver.usable_bytes()), lanes() as u64))
    }

    /// Whether each has room for one proof of this circuit, its key passing through.
    ///
    /// # Errors
    /// Which has not.
    pub fn require(&self, r1cs: &R1cs) -> Result<(), String> {
        use plimsoll_groth16::device::{DeviceBackend, DeviceSizes, Residence, ScalarLayout};
        let sizes = DeviceSizes::new(r1cs, plimsoll_groth16::keys::HBasis::PowersOfTau);
        let scalars = ScalarLayout::new(&sizes, Residence::Streamed).bytes;
        for driver in &self.drivers {
            let memory = Bytes(driver.usable_bytes());
            let room = memory.saturating_sub(scalars);
            if driver.plans(&sizes, Residence::Streamed, room).is_empty() {
                let device = driver.device();
                return Err(format!(
                    "device {device} has {memory} for proofs, too little for even one of this circuit; give it more with \
                     --device-memory"
                ));
            }
        }
        Ok(())
    }

    /// Their names in a ledger's spaces.
    pub fn numbers(&self) -> Vec<u16> {
        self.drivers.iter().map(plimsoll_cuda::CudaDriver::device).collect()
    }

    fn pipeline_on_cards<In, Beside, Out>(
        &self,
        prover: &Prover,
        ledger: &Ledger,
        pool: &Pool,
        begin: impl Fn(&Prover, &mut Grant, In) -> Result<(Witness, Beside), ProveError> + Send + Sync + 'static,
        end: impl Fn(&Prover, Openings, Beside) -> Result<Out, ProveError> + Send + Sync + 'static,
    ) -> Result<Pipeline<In, Out, ProveError>, PipelineError>
    where
        In: Clone + Send + 'static,
        Beside: Send + 'static,
        Out: Send + 'static,
    {
        use plimsoll::device::{Device, DeviceConfig, DeviceSet};
        use plimsoll_cuda::Staging;
        use plimsoll_groth16::prover::DeviceProver;
        let cards = |error: &dyn std::error::Error| PipelineError::Cards(crate::proving::chain_of(error));
        let (mut devices, mut staging) = (Vec::new(), Vec::new());
        for driver in &self.drivers {
            let number = driver.device();
            staging.push(Staging::new(driver, lanes(), ledger).map_err(|error| cards(&error))?);
            let device = Device::start(number, driver.clone(), ledger, DeviceConfig::default());
            devices.push(device.map_err(|error| cards(&error))?);
        }
        let this = DeviceProver::new(prover.clone(), DeviceSet::new(devices), ledger).map_err(|error| cards(&error))?;
        let through = |builder| staging.iter().fold(builder, |builder, staging| staging.with(builder));
        Ok(this.pipeline(ledger, pool, through, begin, end)?)
    }
}

#[cfg(feature = "cuda")]
fn lanes() -> usize {
    plimsoll::device::DeviceConfig::default().lanes
}

#[cfg(not(feature = "cuda"))]
impl Cards {
    fn are_there(&self) -> bool {
        false
    }

    /// Nothing.
    pub fn host_memory(&self) -> Bytes {
        Bytes::ZERO
    }

    /// The same budget.
    pub fn budget(&self, budget: Budget) -> Budget {
        budget
    }

    /// They are not asked.
    ///
    /// # Errors
    /// None.
    pub fn require(&self, _r1cs: &R1cs) -> Result<(), String> {
        Ok(())
    }

    /// None.
    pub fn numbers(&self) -> Vec<u16> {
        Vec::new()
    }
}
