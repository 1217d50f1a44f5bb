//! Several devices of one kind, and stages of a pipeline that run on whichever of them the job was granted.

use std::fmt;

use super::driver::{Driver, DriverError};
use super::error::{DeviceError, Loss, StageError};
use super::lanes::{Seat, seated};
use super::preference::{self, Candidate};
use super::{Device, LaneCx, LeaseCx, cx};
use crate::Profile;
use crate::ledger::Grant;
use crate::pipeline::{Builder, Carrier, Errand, Retry, StageCx, Stop};
use crate::sync::atomic::{AtomicUsize, Ordering};

/// Devices of one kind, of which a job takes whichever is free.
///
/// A job that may run on each of them has as many alternative profiles ([`profiles`](DeviceSet::profiles)), which differ in the
/// device that their lanes, leases and classes belong to. The ledger grants the first that fits, at the last moment; from
/// then on the job stays where its inputs are. The device of which a stage was granted a lane is the one that runs it.
///
/// ```
/// # use plimsoll::device::{Device, DeviceError, DeviceSet, Driver};
/// # use plimsoll::pipeline::Builder;
/// # use plimsoll::{Bytes, Class, Space};
/// # fn example<D: Driver>(builder: Builder<Vec<u8>, Vec<u8>, DeviceError>, devices: &DeviceSet<D>) {
/// let input = |device| Class::new("device.input", Space::device(device));
/// builder
///     .device_stage("stage in", devices, move |cx, bytes: Vec<u8>| {
///         let buffer = cx.upload(input(cx.device()), &bytes)?;
///         Ok(cx.keep(buffer))
///     })
///     .compute_stage("compute", devices, |cx, staged| {
///         let memory = cx.lend(&staged)?;
///         // … a backend's kernels on `memory` …
///         # let _ = memory;
///         Ok(())
///     });
/// # }
/// ```
pub struct DeviceSet<D: Driver> {
    fleet: std::sync::Arc<Fleet<D>>,
    /// The same, as the pipeline knows it: one for all stages, so that a job's next stage may follow on the same lane.
    carrier: std::sync::Arc<dyn Carrier>,
}

impl<D: Driver> DeviceSet<D> {
    /// A set of these devices.
    ///
    /// # Panics
    ///
    /// If there are none, or two have the same number.
    pub fn new(devices: impl IntoIterator<Item = Device<D>>) -> Self {
        let devices: Vec<_> = devices.into_iter().collect();
        assert!(!devices.is_empty(), "a set of devices has at least one");
        for (at, device) in devices.iter().enumerate() {
            let twice = devices[..at].iter().any(|other| other.number() == device.number());
            assert!(!twice, "device {} is in the set twice", device.number());
        }
        let fleet = std::sync::Arc::new(Fleet { devices, turn: AtomicUsize::new(0) });
        Self { carrier: fleet.clone(), fleet }
    }

    /// The devices, whether they are well or not.
    pub fn devices(&self) -> &[Device<D>] {
        &self.fleet.devices
    }

    /// The device with this number.
    pub fn device(&self, number: u16) -> Option<&Device<D>> {
        self.fleet.device(number)
    }

    /// Those that were given up, and why.
    pub fn losses(&self) -> Vec<Loss> {
        self.fleet.devices.iter().filter_map(Device::loss).collect()
    }

    /// The numbers of the devices that are well, in the order in which the next job should prefer them: first those where
    /// what it needs is resident, then those that have run the fewest stages, in turn where they are equal
    /// ([`preference::order`]).
    pub fn preferred(&self, is_resident: impl Fn(u16) -> bool) -> Vec<u16> {
        // Relaxed: who comes after whom does not matter.
        let turn = self.fleet.turn.fetch_add(1, Ordering::Relaxed);
        let well = self.fleet.devices.iter().filter(|device| !device.is_lost());
        let candidate = |device: &Device<D>| {
            let number = device.number();
            Candidate { number, is_resident: is_resident(number), begun: device.crew.lanes.begun() }
        };
        let mut candidates: Vec<Candidate> = well.map(candidate).collect();
        preference::order(turn, &mut candidates);
        candidates.iter().map(|candidate| candidate.number).collect()
    }

    /// One profile for each device that is well, as [`preferred`](DeviceSet::preferred): a job's alternatives. Should all be
    /// given up there is still one, for the first device, so that the ledger's refusal can say why.
    pub fn profiles(&self, is_resident: impl Fn(u16) -> bool, profile: impl Fn(u16) -> Profile) -> Vec<Profile> {
        let mut numbers = self.preferred(is_resident);
        if numbers.is_empty() {
            numbers.push(self.fleet.devices[0].number());
        }
        numbers.into_iter().map(profile).collect()
    }

    /// The carrier of this set's stages, for [`Builder::stage_on`] and its kin; inside, [`on_lane`](DeviceSet::on_lane) and
    /// [`on_lease`](DeviceSet::on_lease) give access to the device.
    pub fn carrier(&self) -> &std::sync::Arc<dyn Carrier> {
        &self.carrier
    }

    /// Runs `f` on the lane that runs this stage.
    ///
    /// # Errors
    ///
    /// What `f` returns; or a [`DeviceError`] if the device was given up, the job holds no lane, or the caller is not a stage
    /// of this set.
    ///
    /// # Panics
    ///
    /// With the panic of `f`, after the device has been synchronised.
    pub fn on_lane<R, E>(
        &self,
        stage: &mut StageCx<'_>,
        f: impl for<'lease> FnOnce(&mut LaneCx<'lease, D>) -> Result<R, E>,
    ) -> Result<R, E>
    where
        E: From<DeviceError>,
    {
        self.on(stage, |seat, grant, stop| cx::on_lane(seat, grant, Some(stop), f))
    }

    /// Runs `f`, which computes, on the lane that runs this stage.
    ///
    /// # Errors
    ///
    /// As [`on_lane`](DeviceSet::on_lane), also if the job holds no lease.
    ///
    /// # Panics
    ///
    /// With the panic of `f`, after the device has been synchronised.
    pub fn on_lease<R, E>(
        &self,
        stage: &mut StageCx<'_>,
        f: impl for<'lease> FnOnce(&mut LeaseCx<'lease, D>) -> Result<R, E>,
    ) -> Result<R, E>
    where
        E: From<DeviceError>,
    {
        self.on(stage, |seat, grant, stop| cx::on_lease(seat, grant, Some(stop), f))
    }

    fn on<R, E>(
        &self,
        stage: &mut StageCx<'_>,
        f: impl FnOnce(&mut Seat<D>, &mut Grant, &Stop) -> cx::Ended<D, R, E>,
    ) -> Result<R, E>
    where
        E: From<DeviceError>,
    {
        let (grant, stop) = stage.split();
        // A stage whose device is no more is run where that was found, which may be a lane of another one.
        let granted = grant.lane().and_then(|number| self.fleet.device(number));
        if granted.is_some_and(Device::is_lost) && !mutant!("lost-found-elsewhere") {
            return Err(self.fleet.refusal(grant).into());
        }
        let Some(ended) = seated(|seat| f(seat, grant, stop)) else { return Err(self.fleet.refusal(grant).into()) };
        let cx::Ended { result, left } = ended;
        // Before the pipeline drops the grant.
        drop(left);
        result.map_err(|error| match error {
            StageError::Stage(source) | StageError::OutOfMemory { source, .. } => source,
            StageError::Device(error) => error.into(),
            // The pipeline reports it.
            StageError::Panicked { message } => std::panic::panic_any(message),
        })
    }
}

impl<D: Driver> Clone for DeviceSet<D> {
    fn clone(&self) -> Self {
        Self { fleet: self.fleet.clone(), carrier: self.carrier.clone() }
    }
}

impl<D: Driver> fmt::Debug for DeviceSet<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DeviceSet").field(&self.fleet.devices).finish()
    }
}

/// The devices, as carriers of a pipeline's stages.
struct Fleet<D: Driver> {
    devices: Vec<Device<D>>,
    turn: AtomicUsize,
}

impl<D: Driver> Fleet<D> {
    fn device(&self, number: u16) -> Option<&Device<D>> {
        self.devices.iter().find(|device| device.number() == number)
    }

    /// Why a stage was not run on a lane of these devices.
    fn refusal(&self, grant: &Grant) -> DeviceError {
        match grant.lane().and_then(|number| self.device(number)) {
            Some(device) if device.is_lost() => device.crew.lanes.refusal(),
            Some(device) => {
                let source = DriverError::Failed { message: "this is not one of its lanes".to_owned() };
                DeviceError::Driver { device: device.number(), source }
            }
            None => DeviceError::NotGranted {
                job: grant.job().to_owned(),
                stage: grant.stage(),
                what: "lane",
                device: self.devices[0].number(),
            },
        }
    }
}

impl<D: Driver> Carrier for Fleet<D> {
    fn carry(&self, errand: Errand) {
        let granted = errand.lane().and_then(|number| self.device(number));
        // One that has not been granted anything yet only asks; any lane can do that.
        let well = || self.devices.iter().find(|device| !device.is_lost());
        let device = granted.or_else(well).unwrap_or(&self.devices[0]);
        device.crew.lanes.carry(errand);
    }

    fn suits(&self, grant: &Grant) -> bool {
        match grant.lane().and_then(|number| self.device(number)) {
            // On a lane of another device it would be refused; so it would everywhere, if its own is no more.
            Some(device) => device.is_lost() || device.is_here(),
            None => true,
        }
    }
}

impl<In, Out, E> Builder<In, Out, E>
where
    In: Send + 'static,
    Out: Send + 'static,
    E: From<DeviceError> + Send + 'static,
{
    /// Adds a stage that runs on a lane of one of `devices`, to copy in or out. Its profile names [a
    /// lane](crate::Demand::on_lane) of the device.
    pub fn device_stage<D, Next, F>(self, name: &'static str, devices: &DeviceSet<D>, run: F) -> Builder<In, Next, E>
    where
        D: Driver,
        F: for<'lease> Fn(&mut LaneCx<'lease, D>, Out) -> Result<Next, E> + Send + Sync + 'static,
        Next: Send + 'static,
    {
        let set = devices.clone();
        self.stage_on(name, devices.carrier(), move |stage, value| set.on_lane(stage, |cx| run(cx, value)))
    }

    /// Adds a stage that computes on one of `devices`. Its profile names [a lane and the lease](crate::Demand::on_lease) of
    /// the device.
    pub fn compute_stage<D, Next, F>(self, name: &'static str, devices: &DeviceSet<D>, run: F) -> Builder<In, Next, E>
    where
        D: Driver,
        F: for<'lease> Fn(&mut LeaseCx<'lease, D>, Out) -> Result<Next, E> + Send + Sync + 'static,
        Next: Send + 'static,
    {
        let set = devices.clone();
        self.stage_on(name, devices.carrier(), move |stage, value| set.on_lease(stage, |cx| run(cx, value)))
    }

    /// As [`compute_stage`](Builder::compute_stage) for the jobs whose profile names a lane in this stage; those that go by an
    /// [alternative](Builder::alternatives) without one are done by `on_worker`, on a worker of the pool. That is how a processor
    /// helps out, or takes over where the devices are lost: by a profile of its own, and never silently
    /// ([`Grant::choice`](crate::Grant::choice)).
    pub fn compute_stage_or<D, Next, F, G>(
        self,
        name: &'static str,
        devices: &DeviceSet<D>,
        on_device: F,
        on_worker: G,
    ) -> Builder<In, Next, E>
    where
        D: Driver,
        F: for<'lease> Fn(&mut LeaseCx<'lease, D>, Out) -> Result<Next, E> + Send + Sync + 'static,
        G: Fn(&mut StageCx<'_>, Out) -> Result<Next, E> + Send + Sync + 'static,
        Next: Send + 'static,
    {
        let set = devices.clone();
        let on_device = move |stage: &mut StageCx<'_>, value| set.on_lease(stage, |cx| on_device(cx, value));
        self.stage_on_either(name, devices.carrier(), on_device, on_worker)
    }

    /// As [`device_stage`](Builder::device_stage), run again from its input when it fails: see
    /// [`stage_again`](Builder::stage_again).
    pub fn device_stage_again<D, Next, F>(
        self,
        name: &'static str,
        devices: &DeviceSet<D>,
        retry: Retry,
        run: F,
    ) -> Builder<In, Next, E>
    where
        D: Driver,
        F: for<'lease> Fn(&mut LaneCx<'lease, D>, &Out) -> Result<Next, E> + Send + Sync + 'static,
        Next: Send + 'static,
    {
        let set = devices.clone();
        let run = move |stage: &mut StageCx<'_>, value: &Out| set.on_lane(stage, |cx| run(cx, value));
        self.stage_on_again(name, devices.carrier(), retry, run)
    }

    /// As [`compute_stage`](Builder::compute_stage), run again from its input when it fails: after the device was out of
    /// memory, say ([`DeviceError::failure`]), and with a smaller plan in the end. The input stays where it is, so what is
    /// staged in is [lent](LaneCx::lend) to the stage.
    pub fn compute_stage_again<D, Next, F>(
        self,
        name: &'static str,
        devices: &DeviceSet<D>,
        retry: Retry,
        run: F,
    ) -> Builder<In, Next, E>
    where
        D: Driver,
        F: for<'lease> Fn(&mut LeaseCx<'lease, D>, &Out) -> Result<Next, E> + Send + Sync + 'static,
        Next: Send + 'static,
    {
        let set = devices.clone();
        let run = move |stage: &mut StageCx<'_>, value: &Out| set.on_lease(stage, |cx| run(cx, value));
        self.stage_on_again(name, devices.carrier(), retry, run)
    }
}
