/* Built from page/ by "make page"; edit the sources there.

d3-color 3.1.1: Copyright 2010-2026 Mike Bostock
d3-dispatch 3.0.2: Copyright 2010-2026 Mike Bostock
d3-drag 3.0.1: Copyright 2010-2026 Mike Bostock
d3-interpolate 3.0.2: Copyright 2010-2026 Mike Bostock
d3-selection 3.0.1: Copyright 2010-2026 Mike Bostock
d3-timer 3.0.2: Copyright 2010-2026 Mike Bostock
d3-transition 3.0.2: Copyright 2010-2026 Mike Bostock
d3-zoom 3.0.1: Copyright 2010-2026 Mike Bostock

Permission to use, copy, modify, and/or distribute this software for any purpose
with or without fee is hereby granted, provided that the above copyright notice
and this permission notice appear in all copies.

THE SOFTWARE IS PROVIDED "AS IS" AND THE AUTHOR DISCLAIMS ALL WARRANTIES WITH
REGARD TO THIS SOFTWARE INCLUDING ALL IMPLIED WARRANTIES OF MERCHANTABILITY AND
FITNESS. IN NO EVENT SHALL THE AUTHOR BE LIABLE FOR ANY SPECIAL, DIRECT,
INDIRECT, OR CONSEQUENTIAL DAMAGES OR ANY DAMAGES WHATSOEVER RESULTING FROM LOSS
OF USE, DATA OR PROFITS, WHETHER IN AN ACTION OF CONTRACT, NEGLIGENCE OR OTHER
TORTIOUS ACTION, ARISING OUT OF OR IN CONNECTION WITH THE USE OR PERFORMANCE OF
THIS SOFTWARE.


d3-ease 3.0.2: Copyright 2010-2026 Mike Bostock, Copyright 2001 Robert Penner

All rights reserved.

Redistribution and use in source and binary forms, with or without modification,
are permitted provided that the following conditions are met:

* Redistributions of source code must retain the above copyright notice, this
  list of conditions and the following disclaimer.

* Redistributions in binary form must reproduce the above copyright notice,
  this list of conditions and the following disclaimer in the documentation
  and/or other materials provided with the distribution.

* Neither the name of the author nor the names of contributors may be used to
  endorse or promote products derived from this software without specific prior
  written permission.

THIS SOFTWARE IS PROVIDED BY THE COPYRIGHT HOLDERS AND CONTRIBUTORS "AS IS" AND
ANY EXPRESS OR IMPLIED WARRANTIES, INCLUDING, BUT NOT LIMITED TO, THE IMPLIED
WARRANTIES OF MERCHANTABILITY AND FITNESS FOR A PARTICULAR PURPOSE ARE
DISCLAIMED. IN NO EVENT SHALL THE COPYRIGHT OWNER OR CONTRIBUTORS BE LIABLE FOR
ANY DIRECT, INDIRECT, INCIDENTAL, SPECIAL, EXEMPLARY, OR CONSEQUENTIAL DAMAGES
(INCLUDING, BUT NOT LIMITED TO, PROCUREMENT OF SUBSTITUTE GOODS OR SERVICES;
LOSS OF USE, DATA, OR PROFITS; OR BUSINESS INTERRUPTION) HOWEVER CAUSED AND ON
ANY THEORY OF LIABILITY, WHETHER IN CONTRACT, STRICT LIABILITY, OR TORT
(INCLUDING NEGLIGENCE OR OTHERWISE) ARISING IN ANY WAY OUT OF THE USE OF THIS
SOFTWARE, EVEN IF ADVISED OF THE POSSIBILITY OF SUCH DAMAGE.


preact 11.2.0: Copyright (c) 2015-present Jason Miller

The MIT License (MIT)


Permission is hereby granted, free of charge, to any person obtaining a copy
of this software and associated documentation files (the "Software"), to deal
in the Software without restriction, including without limitation the rights
to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
SOFTWARE.
*/
"use strict";(()=>{var L,Ir,js,Tt,kn,Te,Ur,Ce,Lr,Mn,$n,Qs,de=Symbol.for("pv"),Ie={},Ue=[],Js=/^m(i|n|o|s|text|space)$/,Sn=Array.isArray,Dr=Ue.slice,Vt=Object.assign;function zt(t){
t&&t.parentNode&&t.remove()}function Pe(t,e,n,r,i){var s={type:t,props:e,key:n,ref:r,__k:null,__:null,__b:0,__e:null,__c:null,constructor:de,__v:i||++Ir,__i:-1,__u:0};return!i&&L.vnode&&L.
vnode(s),s}function nt(){return{current:null}}function te(t){return t.children}function V(t,e){this.props=t,this.context=e,this.__g=0}function It(t,e){if(e==null)
return t.__&&It(t.__,t.__i+1);for(var n;e<t.__k.length;e++)if((n=t.__k[e])&&n.__e)return n.__e;return typeof t.type!="function"||t.props.__P?null:It(t)}function to(t){
var e,n=t.__v,r=n.__e,i=[],s=[],o=t.__P;o&&((e=Vt({constructor:de},n)).__v=n.__v+1,L.vnode&&L.vnode(e),On(o,e,n,t.__n,o.namespaceURI,32&n.__u?[r]:null,i,r||It(n),
32&n.__u,s),e.__v=n.__v,e.__.__k[e.__i]=e,Gr(i,e,s),n.__=n.__e=null,e.__e!=r&&Br(e))}function Br(t){if((t=t.__)&&t.__c&&!t.props.__P)return t.__e=null,t.__k.some(
function(e){return e&&(t.__e=e.__e)}),Br(t)}function Ar(t){(8&t.__g||(t.__g|=8,Tt.push(t),Te++))&&kn==L.debounceRendering||((kn=L.debounceRendering)||queueMicrotask)(
Fr)}function Fr(){try{for(var t,e=1;Tt.length;)Tt.length>e&&Tt.sort(Ur),t=Tt.shift(),e=Tt.length,8&t.__g&&to(t)}finally{(Te=Tt.length)&&(kn||queueMicrotask)(Fr)}}
function zr(t,e,n,r,i,s,o,a,u,l,c){var h,p,d,m,y,w,b=r.__k||Ue,_=e.length;for(u=eo(n,e,b,u,_),h=0;h<_;h++)(d=n.__k[h])!=null&&(p=~d.__i&&b[d.__i]||Ie,d.__i=h,w=
On(t,d,p,i,s,o,a,u,l,c),m=d.__e,(p.ref!=d.ref||8&p.__u)&&(p.ref&&En(p.ref,null,d,p),d.ref&&c.push(d.ref,d.__c||m,d)),y=y||m,4&d.__u?(u=Vr(d,u,t,!p.__v),p.__e&&(p.
__e=null)):typeof d.type=="function"&&w!==void 0?u=w:m&&(u=m.nextSibling),d.__u&=-21);return n.__e=y,u}function eo(t,e,n,r,i){var s,o,a,u,l,c,h,p,d,m=n.length,y=m,
w=0,b=0,_=t.__k=Array(i);for(s=0;s<i;s++)(o=e[s])!=null&&typeof o!="boolean"&&typeof o!="function"?(typeof o!="object"||o.constructor===String?o=_[s]=Pe(null,o):
Sn(o)?o=_[s]=Pe(te,{children:o}):o.constructor===de&&o.__b?o=_[s]=Pe(o.type,o.props,o.key,o.ref,o.__v):_[s]=o,u=s+w,o.__=t,o.__b=t.__b+1,a=null,~(l=o.__i=no(o,n,
u,y))&&(y--,(a=n[l])&&(a.__u|=2)),a&&a.__v?(o.__u|=16,l==u-1?w--:l==u+1?w++:l!=u&&(l>u?w--:w++,b=1)):(~l||(i>m?w--:i<m&&w++),typeof o.type!="function"&&(o.__u|=
4))):_[s]=null;if(b){for(c=[],h=[],s=0;s<i;s++)if((o=_[s])&&16&o.__u){for(w=0,p=c.length;w<p;)c[d=w+p>>1]<o.__i?w=d+1:p=d;c[w]=o.__i,h[s]=w+1}for(w=c.length;s--;)
h[s]&&(h[s]==w?w--:_[s].__u|=4)}if(y)for(s=0;s<m;s++)!(a=n[s])||2&a.__u||(a.__e==r&&(r=It(a)),Nn(a,a));return r}function Vr(t,e,n,r){var i,s,o,a;if(typeof t.type==
"function"){if(t.props.__P)return e;if(i=t.__k)for(s=0;s<i.length;s++)i[s]&&(i[s].__=t,e=Vr(i[s],e,n,!1));return e}for(e&&!e.parentNode&&(e=It(t))&&!e.parentNode&&
(e=null),o=t.__e,a=e;a&&a.nodeType==8;)a=a.nextSibling;for(o!=a&&(!r&&n.moveBefore&&o.parentNode?n.moveBefore(o,e):n.insertBefore(o,e||null)),e=o;(e=e&&e.nextSibling)&&
e.nodeType==8&&!e.data.startsWith("$s"););return e}function no(t,e,n,r){var i,s=t.key,o=t.type,a=e[n],u=a&&!(2&a.__u);if(a===null&&s==null||u&&s==a.key&&o==a.type)return n;if(r>(u?1:0)){for(i=n-1;i>=0;i--)if((a=
e[i])&&!(2&a.__u)&&s==a.key&&o==a.type)return i;for(i=n+1;i<e.length;i++)if((a=e[i])&&!(2&a.__u)&&s==a.key&&o==a.type)return i}return-1}function Tr(t,e,n){n==null&&
(n=""),e[0]=="-"?t.setProperty(e,n):t[e]=n}function Ne(t,e,n,r,i){var s,o;if(e=="style")if(typeof n=="string")t.style.cssText=n;else{if(typeof r=="string"&&(t.style.
cssText=r=""),r)for(e in r)n&&e in n||Tr(t.style,e);if(n)for(e in n)r&&n[e]==r[e]||Tr(t.style,e,n[e])}else if(e[0]=="o"&&e[1]=="n")typeof n!="function"&&(n=null),
typeof r!="function"&&(r=null),(t.__e||(t.__e={}))[e]=n,n&&r||(o=$n[e]||($n[e]=ro(e)),(t.__a||(t.__a={}))[e]=Mn,s=e!=(e=e.replace(Lr,"$1")),(e=e.slice(2))[0]<"a"&&
(e=e.toLowerCase()),n?t.addEventListener(e,o,s):t.removeEventListener(e,o,s));else{if(i=="http://www.w3.org/2000/svg")e=e.replace(/xlink(H|:h)/,"h").replace(/sName$/,
"s");else if(e!="width"&&e!="height"&&e!="href"&&e!="list"&&e!="form"&&e!="tabIndex"&&e!="download"&&e!="rowSpan"&&e!="colSpan"&&e!="role"&&e!="popover"&&e in t)
try{return void(t[e]=n??"")}catch{}if(typeof n=="function")return;n==null||n===!1&&e[4]!="-"?t.removeAttribute(e):t.setAttribute(e,e=="popover"&&n==1?"":n)}}function ro(t){
return function(e){var n=this.__e;if(n){if(n=n[t],e[Ce]==null)e[Ce]=Mn++;else if(e[Ce]<this.__a[t])return;return n(L.event?L.event(e):e)}}}function On(t,e,n,r,i,s,o,a,u,l){
var c,h,p,d,m,y,w,b,_,O,$,T,P,U,K,Q,G,wt,J=e.type;if(e.constructor!==de)return null;128&n.__u&&(u=32&n.__u,c=n.__c.__z)&&(e.__u|=u,h=s=[],c.nodeType==8?a=Ae(c,s):
s.push(c),a=s[0]||a),(c=L.__b)&&c(e);t:if(typeof J=="function"){p=o.length;try{if(b=e.props,_=(c=J.prototype)&&c.render,O=(c=J.contextType)&&r[c.__c],$=c?O?O.props.
value:c.__:r,(d=n.__c)?(e.__c=d,2&d.__g&&(d.__g|=1)):(_?e.__c=d=new J(b,$):(e.__c=d=new V(b,$),d.constructor=J,d.render=so),O&&O.sub(d),d.state||(d.state={}),d.
__n=r,d.__g|=8,d.__h=[],d.__k=[]),_&&(d.__s||(d.__s=d.state),J.getDerivedStateFromProps&&(d.__s==d.state&&(d.__s=Vt({},d.__s)),Vt(d.__s,J.getDerivedStateFromProps(
b,d.__s)))),m=d.props,y=d.state,d.__v=e,n.__c){if(b!==m&&_&&!J.getDerivedStateFromProps&&d.componentWillReceiveProps&&d.componentWillReceiveProps(b,$),e.__v==n.
__v&&!(8&d.__g)||!(4&d.__g)&&d.shouldComponentUpdate&&d.shouldComponentUpdate(b,d.__s,$)===!1){e.__v!=n.__v&&(d.props=b,d.state=d.__s,d.__g&=-9),e.__e=n.__e,e.__k=
n.__k,e.__k.some(function(X){X&&(X.__=e)}),Ue.push.apply(d.__h,d.__k),d.__k=[],d.__h.length&&o.push(d),a=It(n);break t}d.componentWillUpdate&&d.componentWillUpdate(
b,d.__s,$),_&&d.componentDidUpdate&&d.__h.push(function(){d.componentDidUpdate(m,y,w)})}else _&&!J.getDerivedStateFromProps&&d.componentWillMount&&d.componentWillMount(),
_&&d.componentDidMount&&d.__h.push(d.componentDidMount);d.context=$,d.props=b,d.__P=t,d.__g&=-5,T=L.__r,P=_?25:0;do d.__g&=-9,T&&T(e),c=d.render(d.props,d.state=
d.__s,d.context);while(8&d.__g&&++P<25);_&&(Ue.push.apply(d.__h,d.__k),d.__k=[]),d.state=d.__s,d.getChildContext&&(r=Vt({},r,d.getChildContext())),_&&n.__c&&d.getSnapshotBeforeUpdate&&
(w=d.getSnapshotBeforeUpdate(m,y)),U=c&&c.type===te&&c.key==null?c.props.children:c,b.__P&&(c=a,i=(t=b.__P).namespaceURI,u=s=null,n.props&&n.props.__P!=t&&(n.__k.
some(function(X){X&&Nn(X,X)}),n.__k=null),a=n.__k?It(n,0):null),a=zr(t,Sn(U)?U:[U],e,n,r,i,s,o,a,u,l),b.__P&&(e.__e=null,a=c),e.__u&=-161,h&&h.some(zt),d.__h.length&&
o.push(d),1&d.__g&&(d.__g&=-4)}catch(X){if(o.length=p,e.__v=null,u||s)if(X&&X.then){if(e.__u|=128|u,s){for(~(G=s.indexOf(a||void 0))||(G=s.length);(wt=s[G-1])&&
wt.nodeType==8;)G--;for(;G<s.length;G++)if(wt=s[G])if(s[G]=null,K){if(wt==Q)break}else{if(wt.nodeType!=8)break;wt.data.startsWith("$s")&&(Q=Ae(K=wt))}}if(!K){for(;a&&
a.nodeType==8&&a.nextSibling;)a=a.nextSibling;K=a}(c=Ae(K=e.__c.__z||(e.__c.__z=K)))?(e.__e=K,a=c):e.__e=a,a=a&&a.nextSibling}else s&&s.some(zt);else e.__e=n.__e;
e.__k||(e.__k=n.__k||[]),X&&X.then||Rr(e),L.__e(X,e,n)}}else a=e.__e=io(n.__e,e,n,r,i,s,o,u,l,t);return(c=L.diffed)&&c(e),a}function Ae(t,e){if(t&&t.nodeType==8&&
t.data.startsWith("$s"))for(var n=1;t=t.nextSibling;){if(t.nodeType==8){if(t.data.startsWith("$s"))n++;else if(t.data.startsWith("/$s")&&!--n)return t}e&&e.push(
t)}}function Rr(t){t&&(t.__c&&(t.__c.__g|=4),t.__k&&t.__k.some(Rr))}function Gr(t,e,n){for(var r=0;r<n.length;)En(n[r++],n[r++],n[r++]);L.__c&&L.__c(e,t),t.some(
function(i){try{t=i.__h,i.__h=[],t.some(function(s){s.call(i)})}catch(s){L.__e(s,i.__v)}})}function io(t,e,n,r,i,s,o,a,u,l){var c,h,p,d,m,y,w,b,_=n.props||Ie,O=e.
props,$=e.type;if($=="svg"?i="http://www.w3.org/2000/svg":$=="math"?i="http://www.w3.org/1998/Math/MathML":i||(i="http://www.w3.org/1999/xhtml"),s){for(c=0;c<s.
length;c++)if((m=s[c])&&($?m.localName==$:m.nodeType==3)){t=m,s[c]=null;break}}if(!t){if(b=l.ownerDocument||document,!$)return b.createTextNode(O);t=b.createElementNS(
i,$,O.is?O:l),a&&(L.__m&&L.__m(e,s),a=!1),s=null}if($){if(l=$=="template"&&t.content||t,s=$=="textarea"&&O.defaultValue!=null?null:s&&Dr.call(l.childNodes),!a&&
s)for(_={},c=0;c<t.attributes.length;c++)_[(m=t.attributes[c]).name]=m.value;for(c in _)m=_[c],c=="dangerouslySetInnerHTML"?p=m:c=="children"||c in O||c=="value"&&
"defaultValue"in O||c=="checked"&&"defaultChecked"in O||Ne(t,c,null,m,i);for(c in O)m=O[c],c=="children"?d=m:c=="dangerouslySetInnerHTML"?h=m:c=="value"?y=m:c==
"checked"?w=m:a&&typeof m!="function"||_[c]===m||Ne(t,c,m,_[c],i);h?(a||p&&(h.__html==p.__html||h.__html==t.innerHTML)||(t.innerHTML=h.__html),e.__k=[]):(p&&(t.
textContent=""),($=="foreignObject"||i=="http://www.w3.org/1998/Math/MathML"&&Js.test($))&&(i="http://www.w3.org/1999/xhtml"),zr(l,Sn(d)?d:[d],e,n,r,i,s,o,s?s[0]:
n.__k&&It(n,0),a,u),s&&s.some(zt)),a&&$!="textarea"||(c="value",$=="progress"&&y==null?t.removeAttribute(c):y==null||y===t[c]&&($!="progress"||y)||Ne(t,c,y,_[c],
i),c="checked",w!=null&&w!=t[c]&&Ne(t,c,w,_[c],i))}else _===O||a&&t.data==O||(t.data=O);return t}function En(t,e,n,r){try{typeof t=="function"?e?e.__x=t(e)||1:r&&
(r=r.__c||r.__e)&&(e=r.__x)&&(r.__x=null,typeof e=="function"?e():t(null)):t.current=e}catch(i){L.__e(i,n)}}function Nn(t,e,n){var r,i,s,o;if(L.unmount&&L.unmount(
t),!(r=t.ref)||r.current&&r.current!=t.__e||En(r,null,e,t),r=t.__c){if(r.componentWillUnmount)try{r.componentWillUnmount()}catch(a){L.__e(a,e)}r.__P=r.__n=null}
if(r=t.__k)for(o=0;o<r.length;o++)r[o]&&Nn(r[o],e,typeof t.type!="function"||n&&!t.props.__P);!n&&(r=t.__c)&&(r=r.__z)&&(i=Ae(r,s=[]))&&(r==t.__e&&s.some(zt),zt(
i),zt(r)),n||zt(t.__e),t.__e=t.__c=t.__=null}function so(t,e,n){return this.constructor(t,n)}function ee(t,e){var n,r,i,s;L.__&&L.__(t,e),e.nodeType==9&&(e=e.documentElement),
r=(n=t&&32&t.__u)?null:e.__k,e.__k=Pe(te,{children:[t]}),i=[],s=[],On(e,e.__k,r||Ie,Ie,e.namespaceURI,r?null:e.firstChild?Dr.call(e.childNodes):null,i,r?r.__e:e.
firstChild,n,s),Gr(i,e.__k,s),e.__k.props.children=null}L={__e:function(t,e,n,r){for(var i,s,o;e=e.__;)if((i=e.__c)&&!(1&i.__g)){i.__g|=4;try{if((o=(s=i.constructor)&&s.getDerivedStateFromError)&&i.setState(s.getDerivedStateFromError(
t)),i.componentDidCatch&&(i.componentDidCatch(t,r||{}),o=1),o&&8&i.__g)return void(i.__g|=2)}catch(a){t=a}}throw Te=0,t}},Ir=0,js=function(t){return t!=null&&t.
constructor===de},V.prototype.setState=function(t,e){var n=this.__s;n&&n!=this.state||(n=this.__s=Vt({},this.state)),typeof t=="function"&&(t=t(Vt({},n),this.props)),
t&&(Vt(n,t),this.__v&&(e&&this.__k.push(e),Ar(this)))},V.prototype.forceUpdate=function(t){this.__v&&(this.__g|=4,t&&this.__h.push(t),Ar(this))},V.prototype.render=
te,Tt=[],Te=0,Ur=function(t,e){return t.__v.__b-e.__v.__b},Ce=Symbol(),Lr=/(PointerCapture)$|Capture$/i,Mn=0,$n={},Qs=0;var Hr=["B","KiB","MiB","GiB","TiB","PiB"];function I(t){let e=0;for(;t>=999.5&&e<Hr.length-1;)[t,e]=[t/1024,e+1];return`${qr(t,e===0)} ${Hr[e]}`}var Wr=["","k",
"M","G","T","P","E"];function ne(t){let e=0;for(;t>=999.5&&e<Wr.length-1;)[t,e]=[t/1e3,e+1];return`${qr(t,e===0)} ${Wr[e]}`.trim()}function dt(t){let e=ne(t);return/\d$/.
test(e)?`${e} FLOP`:`${e}FLOP`}function qr(t,e){return e?String(Math.round(t)):t>=99.95?t.toFixed(0):t>=9.995?t.toFixed(1):t.toFixed(2)}function M(t){return t.toLocaleString(
"en-US")}function Ut(t){if(t===null)return"–";if(t===0||Number.isInteger(t)&&Math.abs(t)<1e6)return M(t);let e=Math.abs(t);return e>=.001&&e<1e5?String(Number(
t.toPrecision(4))):t.toExponential(2)}var Lt={added:"+",removed:"−",changed:"~"};function rt(t,e){return`${M(t)} ${e}${t===1?"":"s"}`}function Kr(t){let e=t.split(
".");return e.length>=3?e[e.length-2]:e[e.length-1]}function kt(t,e){if(t.length<=e)return t;let n=Math.ceil((e-1)*.55);return`${t.slice(0,n)}…${t.slice(t.length-
(e-1-n))}`}var oo=/[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\uffff\ud800-\udfff]/gu;function it(t){return t.replace(
oo,e=>`\\u${e.charCodeAt(0).toString(16).padStart(4,"0")}`)}var ao=[["attention",/^_?(scaled_dot_product|flash_attention|efficient_attention|flex_attention)/],[
"convolution",/^(_?conv|convolution|cudnn_conv|mkldnn_conv|slow_conv|thnn_conv)/],["matmul",/^_?(mm|addmm|bmm|baddbmm|addbmm|mv|addmv|dot|vdot|matmul|linear|scaled_mm|int_mm|grouped_mm|weight_int\w*)(_\w+)?$/],
["norm",/(layer|batch|group|rms|instance)_norm|^_?(weight_norm|native_\w*norm)|cudnn_batch_norm/],["softmax",/softmax/],["embedding",/embedding|^gather|^scatter|index|^take/],
["pool",/pool|upsample|interpolate|grid_sample/],["random",/dropout|^(rand|bernoulli|normal|uniform|multinomial|philox)/],["reduction",/^(sum|mean|var|std|amax|amin|max|min|argmax|argmin|any|all|prod|logsumexp|norm|linalg_vector_norm|cum\w+|nll_loss\w*|mse_loss\w*)(_|$)/],
["creation",/^(full|zeros|ones|empty|arange|new_|scalar_tensor|eye|tril|triu|linspace)/],["copy",/^(clone|_to_copy|copy|contiguous|cat|stack|constant_pad|roll|flip|sort|topk)/]];
function Xr(t,e,n){return n?"guard":e?"view":ao.find(([,r])=>r.test(t))?.[0]??"pointwise"}var mt=["added","removed","changed"],Cn=1,Zr=2,jr=4,re=class extends Error{constructor(n,r){super();this.where=n;this.what=r}where;what;get message(){return`${this.
where}: ${this.what}`}},Yr=["program","module","loop","turn","line","steps"];function Le(t,e){throw new re(t,e)}function E(t,e,n){t||Le(e,n)}function Z(t){let e=JSON.
stringify(t)??"nothing";return e.length>60?`${e.slice(0,60)}…`:e}function pt(t,e){return E(typeof t=="object"&&t!==null&&!Array.isArray(t),e,`an object was ex\
pected, found ${Z(t)}`),t}function Rt(t,e){return E(Array.isArray(t),e,`a list was expected, found ${Z(t)}`),t}function st(t,e){E(typeof t=="string",e,`a text w\
as expected, found ${Z(t)}`)}function $t(t,e,n,r){Number.isSafeInteger(t)&&t>=e&&t<n||Le(r,`${Z(t)} is not a whole number from ${e} to ${n===1/0?"2**53 - 1":n-1}`)}
function W(t,e){typeof t=="number"&&Number.isFinite(t)&&t>=0||Le(e,`${Z(t)} is not a number of 0 or more`)}function A(t,e,n){let r=Rt(t,e),i=0;try{for(;i<r.length;i++)
n(r[i],"",i)}catch(s){throw s instanceof re&&(s.where=`${e}[${i}]${s.where}`),s}}function ot(t,e,n){let r=Rt(t,e);E(r.length===n.length,e,`${n.length} entries w\
ere expected, found ${r.length}`),A(r,e,(i,s,o)=>n[o](i,s))}var B=(t,e)=>(n,r)=>$t(n,t,e,r);function uo(t,e){let n=pt(t.nodes,`${e}.nodes`),r=Rt(n.name,`${e}.no\
des.name`).length,[i,s]=[B(0,t.strings.length),B(0,1/0)],o={name:i,op:i,args:i,spec:i,echo:i,source:B(-1,t.sources.length),frame:B(0,t.frames.length),product:W,
other:W,read:s,written:s,memory:s,flags:B(0,8),inputs:(a,u)=>A(a,u,B(0,r+t.ports.length)),partners:(a,u)=>A(a,u,B(0,t.forward))};for(let[a,u]of Object.entries(o)){
let l=Rt(n[a],`${e}.nodes.${a}`);E(l.length===r,`${e}.nodes.${a}`,`${r} entries were expected, one a step, found ${l.length}`),A(l,`${e}.nodes.${a}`,u)}$t(t.forward,
0,r+1,`${e}.forward`)}function lo(t,e){let n=t.nodes.name.length,r=B(0,t.strings.length),i=t.ports.filter(a=>a.into).length;A(t.ports,`${e}.ports`,(a,u)=>{let l=pt(
a,u);$t(l.side,0,2,`${u}.side`),E(typeof l.into=="boolean",`${u}.into`,`true or false was expected, found ${Z(l.into)}`),st(l.role,`${u}.role`),r(l.name,`${u}.n\
ame`),r(l.spec,`${u}.spec`),W(l.bytes,`${u}.bytes`),$t(l.value,l.into?n:-1,n+i,`${u}.value`)});let s=n;t.ports.forEach((a,u)=>{a.into&&E(a.value===s++,`${e}.por\
ts[${u}].value`,`${s-1} was expected, found ${a.value}`)});let o=B(0,n+i);A(t.nodes.inputs,`${e}.nodes.inputs`,(a,u)=>A(a,u,o)),A(t.saved,`${e}.saved`,(a,u)=>ot(
a,u,[o,B(n,n+i),W,W]))}function co(t,e){let{frames:n,layouts:r,nodes:i}=t,s=B(0,t.strings.length),o={steps:new Uint8Array(i.name.length),frames:new Uint8Array(n.
length)};E(n.length>0,`${e}.frames`,"there is no frame"),n.forEach((u,l)=>{let c=`${e}.frames[${l}]`;s(u.name,`${c}.name`),s(u.label,`${c}.label`),E(Yr.includes(
u.kind),`${c}.kind`,`${Z(u.kind)} is none of ${Yr.join(", ")}`),$t(u.parent,l?0:-1,l?n.length:0,`${c}.parent`),$t(u.layout,u.kind==="loop"?-1:0,u.kind==="loop"?
0:r.length,`${c}.layout`),ot(u.counts,`${c}.counts`,[W,W,W,W,W]),A(u.units,`${c}.units`,B(-n.length,i.name.length)),E(u.kind!=="loop"||u.units.length,c,"a loop \
without a turn");for(let h of u.units){let[p,d]=h<0?[o.frames,-h-1]:[o.steps,h];E(!p[d]++,c,`${h<0?"frame":"step"} ${d} is in two frames`);let m=h<0?n[d].parent:
i.frame[d];E(m===l,c,`${h<0?"frame":"step"} ${d} says that it is in frame ${m}`),E(u.kind!=="loop"||h<0,c,`step ${d} is a turn of a loop`)}});let a=o.steps.indexOf(
0);E(a<0,`${e}.frames`,`step ${a} is in no frame`),n.forEach((u,l)=>{let[c,h]=[l,n.length];for(;c>0&&h--;)E(o.frames[c],`${e}.frames[${c}]`,"it is in no frame"),
c=n[c].parent;E(c<=0,`${e}.frames[${l}]`,"it is inside itself")}),n.forEach((u,l)=>{u.layout>=0&&mo(r[u.layout],u,t.forward,`${e}.frames[${l}]`)}),ho(t,e)}var fo=[
"steps forward","steps backward","saved bytes","FLOPs of products forward","FLOPs of products backward"];function ho(t,e){let{frames:n,nodes:r,forward:i}=t,s=new Map;
for(let[a,,,u]of t.saved)s.set(a,(s.get(a)??0)+u);let o=n.map(()=>[0,0,0,0,0]);r.name.forEach((a,u)=>{let l=o[r.frame[u]],c=u<i?0:1;l[c]+=1,l[2]+=s.get(u)??0,l[3+
c]+=r.product[u]});for(let a of po(n).reverse())a&&o[a].forEach((u,l)=>{o[n[a].parent][l]+=u});n.forEach((a,u)=>a.counts.forEach((l,c)=>E(l===o[u][c]||l>Number.
MAX_SAFE_INTEGER,`${e}.frames[${u}].counts`,`it says ${l} ${fo[c]}, and its steps add up to ${o[u][c]}`)))}function po(t){let e=[0];for(let n of e)for(let r of t[n].
units)r<0&&e.push(-r-1);return e}function mo(t,e,n,r){let i=new Uint8Array(e.units.length);for(let s of t.rows)s.forEach((o,a)=>{for(let u of o)E(u<e.units.length&&
!i[u]++,r,`its layout gives ${u} no place, or two`),E(e.units[u]<0==(a===1),r,`its layout takes unit ${u} for a ${a===1?"frame":"step"}`),E(a===1||e.units[u]<n==
(a===0),r,`its layout has step ${e.units[u]} on the side of the ${a?"backward":"forward"}`)});E(i.every(Boolean),r,`its layout has no place for unit ${i.indexOf(
0)}`)}function go(t,e){A(t.layouts,`${e}.layouts`,(n,r)=>{let i=pt(n,r),s=0;A(i.rows,`${r}.rows`,(a,u)=>{ot(a,u,[0,1,2].map(()=>(l,c)=>A(l,c,B(0,1/0)))),s+=a.flat().
length}),ot(i.slots,`${r}.slots`,[B(0,1e5),B(0,1e5)]);let o=B(-1,s);["left","right"].forEach((a,u)=>A(i[a],`${r}.${a}`,(l,c)=>ot(l,c,[o,o,B(-1,i.slots[u]),B(0,t.
strings.length),W]))),A(i.bridges,`${r}.bridges`,(a,u)=>ot(a,u,[o,o,W,W]))})}function yo(t,e){let n=t.nodes.name.length,r=pt(t.memory,`${e}.memory`);W(r.before,
`${e}.memory.before`),A(r.live,`${e}.memory.live`,W),E(t.memory.live.length===n,`${e}.memory.live`,`${n} entries were expected, one a step, found ${t.memory.live.
length}`);let i=B(-1,n+t.ports.length),s=(o,a)=>ot(o,a,[i,B(0,n+1),B(0,n+1),W,B(0,t.strings.length)]);for(let o of["spans","held"])A(r[o],`${e}.memory.${o}`,s);
ot(r.peak,`${e}.memory.peak`,[B(-1,Math.max(n,1)),W]),bo(t.memory,n,`${e}.memory`)}function bo({live:t,spans:e,peak:n},r,i){let s=new Float64Array(r+2);for(let[
,u,l,c]of e)s[u]+=c,s[l+1]-=c;let o=0;for(let u=0;u<r;u++)o+=s[u],E(t[u]===o||o>Number.MAX_SAFE_INTEGER,`${i}.live[${u}]`,`it says ${t[u]} bytes, and its spans \
add up to ${o}`);let a=t.reduce((u,l)=>Math.max(u,l),0);E(n[1]===a&&(!r||t[n[0]]===a),`${i}.peak`,`it says ${n[1]} bytes at step ${n[0]}, and the most that live\
 are ${a}`)}function vo(t,e){if(t.stats===void 0)return;let{value:n,rows:r}=pt(t.stats,e);A(n,`${e}.value`,B(0,t.nodes.name.length+t.ports.length)),A(r,`${e}.ro\
ws`,(i,s)=>{E(Rt(i,s).length===9,s,`9 numbers were expected, found ${i.length}`),A(i,s,(o,a)=>E(o===null||Number.isFinite(o),a,`${Z(o)} is not a number`))}),E(n.
length===r.length,e,`${n.length} values and ${r.length} rows`)}var wo={added:["+ "],removed:["- "],changed:["- ","+ "]};function _o(t,e){let n=pt(t.marks,e),r=t.
nodes.name.length;$t(n.pair,-1,1/0,`${e}.pair`),A(n.node,`${e}.node`,(i,s,o)=>$t(i,o?n.node[o-1]+1:0,r,s));for(let i of["kind","text","other"]){let s=Rt(n[i],`${e}\
.${i}`).length;E(s===n.node.length,`${e}.${i}`,`${n.node.length} entries were expected, one a marked step, found ${s}`)}A(n.kind,`${e}.kind`,(i,s)=>E(mt.includes(
i),s,`${Z(i)} is none of ${mt.join(", ")}`)),A(n.text,`${e}.text`,(i,s,o)=>{st(i,s);let a=i.split(`
`),u=wo[n.kind[o]];E(a.length===u.length&&u.every((l,c)=>a[c].startsWith(l)),s,`${u.length===1?"a line":"two lines"} with ${u.join("and ").trim()} in front was \
expected of a step that was ${n.kind[o]}, found ${Z(i)}`)})}function xo(t){t.forEach(({marks:e},n)=>{let r=`pairs[${n}].marks`,{pair:i,node:s,kind:o,text:a,other:u}=e,
l=t[i]?.marks;$t(i,-1,t.length,`${r}.pair`),E(l?l.pair===n&&i!==n:i<0,`${r}.pair`,`pair ${i} says that its other pair is ${l?.pair}`);let c=new Map(l?.node.map(
(h,p)=>[h,p]));A(u,`${r}.other`,(h,p,d)=>{if(o[d]!=="changed")return E(h===-1,p,`-1 was expected of a step that was ${o[d]}, found ${Z(h)}`);let m=c.get(h)??-1;
E(m>=0&&l.other[m]===s[d]&&l.text[m]===a[d],p,`step ${Z(h)} of pair ${i} is not marked as what this step was or became`)})})}function ko(t,e){let n=pt(t,e);st(n.
name,`${e}.name`),A(n.strings,`${e}.strings`,st),E(n.strings[0]==="",`${e}.strings`,"the first is not the empty text");for(let s of["ports","sources","saved","f\
rames","layouts"])Rt(n[s],`${e}.${s}`);A(n.frames,`${e}.frames`,pt);let r=B(0,n.strings.length);A(n.sources,`${e}.sources`,(s,o)=>ot(s,o,[r,B(0,1/0),r,r,r])),uo(
n,e),lo(n,e),go(n,e),co(n,e),yo(n,e);let i=pt(n.code,`${e}.code`);for(let s of[i.forward,i.backward])A(s,`${e}.code`,st);ot(i.ends,`${e}.code.ends`,[0,1].map(()=>(s,o)=>A(
s,o,st))),vo(n,`${e}.stats`),n.marks!==void 0&&_o(n,`${e}.marks`)}function Qr(t){let e;try{e=JSON.parse(t)}catch(s){Le("data",`they are not JSON (${s.message})`)}
let n=pt(e,"data");E(n.format===1,"format",`this page reads format 1, found ${Z(n.format)}; write the page again with this version of Backprint`),st(n.title,"ti\
tle"),A(n.facts,"facts",(s,o)=>ot(s,o,[st,st])),A(n.notes,"notes",st),A(n.pairs,"pairs",ko),E(n.pairs.length,"pairs","there is none");let r=n.changes!==void 0;r&&
A(n.changes,"changes",st),n.pairs.forEach((s,o)=>E(s.marks!==void 0===r,`pairs[${o}].marks`,r?"the page has changes, and this pair has no marks":"this pair has \
marks, and the page has no changes")),r&&xo(n.pairs);let i=n.pairs.map(s=>({...s,name:it(s.name)}));return{...n,title:it(n.title),facts:n.facts.map(([s,o])=>[it(
s),it(o)]),notes:n.notes.map(it),...n.changes&&{changes:n.changes.map(it)},pairs:i}}var z=t=>-t-1,De=class{constructor(e,n=""){this.data=e;this.called=n;let{nodes:r,frames:i}=e;this.count=r.name.length,this.strings=e.strings.map(it),this.entering=
e.ports.filter(s=>s.into),this.shorts=r.op.map(s=>Kr(this.strings[s])),this.kinds=this.shorts.map((s,o)=>Xr(s,(r.flags[o]&Cn)!==0,(r.flags[o]&Zr)!==0)),[this.starts,
this.users]=$o(r.inputs,this.count+this.entering.length),this.pulled=Mo(r.partners,this.count),this.place=new Int32Array(this.count),this.framePlace=new Int32Array(
i.length);for(let s of i)s.units.forEach((o,a)=>(o<0?this.framePlace:this.place)[o<0?-o-1:o]=a);[this.alike,this.depth]=this.structure(),this.deepest=this.depth.
reduce((s,o)=>Math.max(s,o),0),this.timed=e.memory.spans.length>0||e.memory.peak[1]>0||e.memory.before>0,this.savedFrom=new Map;for(let[s,o,a,u]of e.saved)pe(this.
savedFrom,s).push([o,a,u]);this.pills=this.portPills(),this.bad=new Map,e.stats?.value.forEach((s,o)=>{let[a,u]=[e.stats.rows[o][6],e.stats.rows[o][7]];(a||u)&&
this.bad.set(s,{nan:a,inf:u})}),e.marks?.node.forEach((s,o)=>this.mark(s,o)),this.badFrames=new Set([...this.bad.keys()].filter(s=>s<this.count).flatMap(s=>this.
above(s)))}data;called;count;strings;entering;shorts;kinds;starts;users;pulled;place;framePlace;alike;depth;deepest;pills;timed;bad;badFrames;savedFrom;marks=new Map;marked=new Map;lines;paths;lineAt;mark(e,n){
let{kind:r,text:i,other:s}=this.data.marks,a=i[n].split(`
`).map(u=>[u.startsWith("-")?"before":"after",it(u.slice(2))]);this.marks.set(e,{kind:r[n],texts:a,other:s[n]});for(let u of this.above(e)){let l=this.marked.get(
u)??Object.fromEntries(mt.map(c=>[c,0]));this.marked.set(u,l),l[r[n]]++}}text(e){return this.strings[e]}frame(e){return this.data.frames[e]}isForward(e){return e<
this.data.forward}nameOf(e){return e<0?"a constant":this.strings[e<this.count?this.data.nodes.name[e]:this.entering[e-this.count].name]}specOf(e){return e<0?"":
this.strings[e<this.count?this.data.nodes.spec[e]:this.entering[e-this.count].spec]}usersOf(e){return[...this.users.subarray(this.starts[e],this.starts[e+1])]}lineOf(e){
let n=this.data.sources[this.data.nodes.source[e]];return n?`${this.strings[n[0]]}:${n[1]}`:""}moduleOf(e){let n=this.data.sources[this.data.nodes.source[e]];return n?
this.strings[n[4]]:""}isSaved(e){return(this.data.nodes.flags[e]&jr)!==0}isView(e){return(this.data.nodes.flags[e]&Cn)!==0}above(e){let n=[];for(let r=e<0?this.
frame(-e-1).parent:this.data.nodes.frame[e];r>=0;r=this.frame(r).parent)n.push(r);return n}title(e){let{name:n,parent:r,kind:i,label:s}=this.frame(e);if(r<0&&this.
called)return this.called;let[o,a]=[this.strings[n],r>=0?this.strings[this.frame(r).name]:""];return(a&&o.startsWith(`${a}.`)?o.slice(a.length+1):o)||this.strings[s]||
i}isTurn(e){let{parent:n}=this.frame(e);return n>=0&&this.frame(n).kind==="loop"}path(e){return(this.paths??=this.allPaths())[e]}allPaths(){let e=[],n=r=>{if(e[r]!==
void 0)return e[r];let{name:i,parent:s,kind:o}=this.frame(r),a=s>0?n(s):"",u=o==="loop"?this.strings[i].replace(/\.?\d+…\d+$/,""):this.strings[i];return e[r]=
s<0?"":[a,u].filter(Boolean).join(o==="line"?" ":".")};return this.data.frames.forEach((r,i)=>n(i)),e}*inside(e){for(let n of this.frame(e).units)n>=0?yield n:yield*this.
inside(-n-1)}call(e){let{op:n,args:r,inputs:i}=this.data.nodes,s=this.strings[r[e]].replace(/\{(\d+)\}/g,(o,a)=>a in i[e]?this.nameOf(i[e][a]):o);return`${this.
strings[n[e]]}(${s})`}echoOf(e){let{echo:n,partners:r}=this.data.nodes,i=this.strings[n[e]];return i&&`${i} ${r[e].map(s=>this.nameOf(s)).join(", ")}`}code(){if(this.
lines)return this.lines;let{forward:e,code:n}=this.data,r=[],i=a=>r.push({node:-1,text:it(a)}),s="",o=(a,u)=>{for(let l=a;l<u;l++){let c=[this.echoOf(l),this.moduleOf(
l),this.lineOf(l)].filter(Boolean).join("; ");c&&c!==s&&r.push({node:l,text:`# ${s=c}`}),r.push({node:l,text:null})}};return n.forward.forEach(i),o(0,e),n.ends[0].
forEach(i),(this.count>e||n.backward.length)&&i(""),n.backward.forEach(i),o(e,this.count),n.ends[1].forEach(i),this.lineAt=new Int32Array(this.count),r.forEach(
(a,u)=>{a.node>=0&&(this.lineAt[a.node]=u)}),this.lines=r}lineOfCode(e){return this.code(),this.lineAt[e]}structure(){let{frames:e}=this.data,n=new Map,[r,i]=[new Int32Array(
e.length),new Int32Array(e.length)],s=(o,a,u)=>{let l=a>=0&&e[e[o].parent].kind==="loop",c=`${a}:${l?"*":this.framePlace[o]}`;n.has(c)||n.set(c,n.size),r[o]=n.get(
c),i[o]=u;for(let h of e[o].units)h<0&&s(-h-1,r[o],l?u:u+1)};return s(0,-1,0),[r,i]}portPills(){let e=new Map,n=i=>e.get(i)??(e.set(i,{outer:[],made:[]}),e.get(
i)),r=i=>{let s=this.strings[i.name];return{text:s.split(".").at(-1),title:`${i.role} ${s} ${this.strings[i.spec]}`,role:i.role}};for(let i of this.entering)if(i.
role==="parameter"||i.role==="buffer")for(let s of this.usersOf(i.value))n(s).outer.push(r(i));for(let i of this.data.ports)!i.into&&i.role!=="saved"&&i.value>=
0&&i.value<this.count&&n(i.value).made.push(r(i));return e}};function pe(t,e){let n=t.get(e)??[];return t.set(e,n),n}function $o(t,e){let n=new Int32Array(e+1),
r=t.map(o=>[...new Set(o)]);for(let o of r)for(let a of o)n[a+1]++;for(let o=0;o<e;o++)n[o+1]+=n[o];let i=n.slice(),s=new Int32Array(n[e]);return r.forEach((o,a)=>o.
forEach(u=>s[i[u]++]=a)),[n,s]}function Mo(t,e){let n=Array.from({length:e},()=>[]);return t.forEach((r,i)=>r.forEach(s=>n[s].push(i))),n}var So=Symbol.for("pv"),Oo=0;function f(t,e,n,r,i,s){e||(e={});var o,a,u=e;if("ref"in u&&typeof t!="function")for(a in u={},e)a=="ref"?o=e[a]:u[a]=e[a];var l={type:t,props:u,key:n,ref:o,__k:null,
__:null,__b:0,__e:null,__c:null,constructor:So,__v:--Oo,__i:-1,__u:0};return(i||s)&&(l.__source=i,l.__self=s),L.vnode&&L.vnode(l),l}function Jr(t){return t.flatMap((e,n)=>{let r=new Map,i=(e.data.marks?.pair??-1)<n;for(let[s,o]of e.marks)(o.other<0||!i)&&pe(r,ti(e,s)).push({pair:n,node:s});return[
...r.values()].flat()})}function ti(t,e){let n=t.data.nodes.frame[e];return t.moduleOf(e)||t.path(n)||t.title(n)}function Pn(t,e,n,r){let{marks:i,data:s}=e[n],o=s.
marks?.pair,a=r===null?void 0:i.get(r)?.other;return t.findIndex(u=>u.pair===n&&u.node===r||u.pair===o&&u.node===a)}function An(t,e){let n=t.marked.get(e);return n?
mt.filter(r=>n[r]).map(r=>`${M(n[r])} ${r}`).join(", "):""}function Tn({page:t,model:e,node:n,jump:r}){let{kind:i,texts:s,other:o}=e.marks.get(n),{pair:a}=e.data.
marks;return f("div",{class:"change",children:[f("p",{children:[f("b",{class:"sign",children:Lt[i]})," ",i,o>=0&&", ",o>=0&&f("button",{class:"link",onClick:()=>r(
a,o),children:["see ",f("bdi",{children:t.pairs[a].name})]})]}),f("dl",{children:s.map(([u,l])=>[f("dt",{children:u},u),f("dd",{children:f("code",{children:f("b\
di",{children:l})})},`${u} `)])})]})}var Eo=200,No=100,Be=class extends V{state={lines:Eo,rows:No};chosen=nt();componentDidUpdate(e){e.at!==this.props.at&&this.
chosen.current?.scrollIntoView({block:"nearest"})}row(e,n){let{page:r,models:i,jump:s,at:o}=this.props,a=i[e.pair],{kind:u}=a.marks.get(e.node);return f("li",{class:n===
o?"chosen":"",ref:n===o?this.chosen:null,"aria-current":n===o,children:[f("b",{class:"sign",title:u,children:Lt[u]}),f("button",{class:`link ${a.isForward(e.node)?
"forward":"backward"}`,title:a.call(e.node),onClick:()=>s(e.pair,e.node),children:f("bdi",{children:a.nameOf(e.node)})}),f("code",{class:"soft",children:a.specOf(
e.node)}),n===o&&f(Tn,{page:r,model:a,node:e.node,jump:s})]},`${e.pair} ${e.node}`)}rows(e){let{page:n,models:r,marked:i}=this.props,s=({pair:o,node:a})=>`${n.pairs[o].
name}, ${ti(r[o],a)}`;return i.slice(0,e).flatMap((o,a)=>{let u=this.row(o,a),l=s(o);return a&&s(i[a-1])===l?[u]:[f("li",{class:"head",children:f("bdi",{children:l})},
`${a} head`),u]})}render({page:e,marked:n,at:r}){let i=e.changes,{lines:s,rows:o}=this.state,a=Math.max(o,r+20);return f("div",{class:"panel",children:[f("h2",{
children:"Changes"}),f("div",{class:"said",children:i.slice(0,s).map((u,l)=>f("div",{class:/^\s+[-+~!]/.test(u)?"one":"",children:f("bdi",{children:u})},l))}),i.
length>s&&f("button",{class:"more",onClick:()=>this.setState({lines:1/0}),children:["show more: ",M(s)," of ",rt(i.length,"line")]}),f("h3",{children:"Steps"}),
n.length?f("ul",{class:"marked",children:this.rows(a)}):f("p",{class:"soft",children:"No step is marked."}),n.length>a&&f("button",{class:"more",onClick:()=>this.
setState({rows:a*5}),children:["show more: ",M(a)," of ",M(n.length)]})]})}};var Gt=18,Fe=class extends V{state={from:0,count:60};box=nt();watcher=new ResizeObserver(()=>this.scrolled());componentDidMount(){this.watcher.observe(this.box.
current),this.follow()}componentWillUnmount(){this.watcher.disconnect()}componentDidUpdate(e){(e.selected!==this.props.selected||e.model!==this.props.model)&&this.
follow()}target(){let{model:e,selected:n}=this.props;return n===null||n>=0?n:e.inside(-n-1).next().value??null}follow(){let e=this.target(),n=this.box.current;if(e!==
null){let r=this.props.model.lineOfCode(e)*Gt;(r<n.scrollTop+Gt||r>n.scrollTop+n.clientHeight-2*Gt)&&(n.scrollTop=r-n.clientHeight/2)}this.scrolled()}scrolled=()=>{
let e=this.box.current,n=Math.max(0,Math.floor(e.scrollTop/Gt)-10),r=Math.ceil(e.clientHeight/Gt)+20;(n!==this.state.from||r!==this.state.count)&&this.setState(
{from:n,count:r})};step(e){let{model:n}=this.props,{op:r,args:i,inputs:s,spec:o}=n.data.nodes,a=[];return n.text(i[e]).split(/\{(\d+)\}/).forEach((l,c)=>{c%2===
0?a.push(l):Number(l)<s[e].length?a.push(f("span",{class:"value",children:f("bdi",{children:n.nameOf(s[e][Number(l)])})})):a.push(`{${l}}`)}),[f("b",{class:n.isForward(
e)?"forward":"backward",children:f("bdi",{children:n.nameOf(e)})}),": ",f("i",{children:['"',n.text(o[e]),'"']})," = ",f("span",{class:"op",children:n.text(r[e])}),
"(",...a,")"]}render({model:e,selected:n,lit:r,go:i}){let s=e.code(),{from:o,count:a}=this.state,u="    ";return f("div",{class:"code",ref:this.box,tabIndex:0,onScroll:this.
scrolled,"data-lines":s.length,children:f("div",{class:"sheet",style:{height:`${s.length*Gt}px`},children:s.slice(o,o+a).map((l,c)=>{let h=l.node>=0&&l.node===n,
p=l.node>=0&&r?.has(l.node),d=e.marks.get(l.node);return f("div",{class:`row${h?" chosen":p?" lit":""}${l.text===null?"":l.node>=0?" note":""}`,style:{top:`${(o+
c)*Gt}px`},onClick:l.node>=0?()=>i(l.node):void 0,children:[f("span",{class:"no",children:[d&&l.text===null&&f("b",{class:"sign",children:[Lt[d.kind]," "]}),o+c+
1]}),l.text===null?[u,u,this.step(l.node)]:l.node>=0?u+u+l.text:l.text]},o+c)})})})}};var at=28,Mt=156,me=10,ie=at+me+Mt/2,Co=28,si=20,Po=50,ze=24,Dn=8,In=28,ei=14,oi=10,Ao=15;function Ht(t,e,n){return e.open.has(t.alike[n])}function se(t,e,n){let{
kind:r,units:i}=t.frame(n);return r!=="loop"?n:se(t,e,-i[Math.min(Dt(t,e,n),i.length-1)]-1)}function Dt(t,e,n){return Math.min(e.turn.get(t.alike[n])??0,t.frame(
n).units.length-1)}function ge(t){return Math.min(t.length,16)*5.6+12}function Bn(t,e){let n=t.pills.get(e),r=[];if(!n)return{left:r,right:r};let i=a=>({...a,text:kt(
a.text,16)}),s=[...n.outer,...n.made].map(i),o=s.length>4?[...s.slice(0,3),{text:`+${s.length-3}`,title:s.slice(3).map(a=>a.title).join(`
`),role:"more"}]:s;return t.isForward(e)?{left:o,right:r}:{left:r,right:o}}function To(t,e){let{left:n,right:r}=Bn(t,e),i=o=>o.length?Math.max(...o.map(a=>ge(a.
text)))+5:0,s=Math.max(t.isView(e)?si:Co,Math.max(n.length,r.length)*Ao);return{left:Mt/2+i(n),right:Mt/2+i(r),height:s}}var Un={left:at+me+Mt,right:at+me+Mt,height:Po};
function ai(t,e,n){if(!Ht(t,e,n))return Un;let r=t.frame(se(t,e,n)),i=t.data.layouts[r.layout],s=[],o=[],a=[],[u,l,c]=[ze+In,Un.left,Un.right];i.rows.forEach((d,m)=>{
let y=d.map(T=>T.map(P=>{let U=r.units[P];return{unit:U,block:U<0?ai(t,e,-U-1):To(t,U)}})),w=Math.max(si,...y.flat().map(T=>T.block.height)),b=(T,P,U)=>{s.push(
{unit:T,x:P,y:u+(w-U.height)/2,block:U,row:m}),[l,c]=[Math.max(l,U.left-P),Math.max(c,U.right+P)]},[_,O]=Io(y[1],b),$=-Math.max(_,at)-me;for(let{unit:T,block:P}of y[0].
reverse())[$]=[$-P.right-P.left-12,b(T,$-P.right,P)];$=Math.max(O,at)+me;for(let{unit:T,block:P}of y[2])[$]=[$+P.right+P.left+12,b(T,$+P.left,P)];o.push(u),a.push(
u+w),u+=w+In});let[h,p]=[i.slots.map(d=>d?d*oi+6:0),Math.max(u,ze+In)+Dn];return{left:l+h[0]+ei,right:c+h[1]+ei,height:p,inside:s,tops:o,bottoms:a,walls:[-l-4,c+
4]}}function Io(t,e){if(!t.length)return[0,0];let n=t.reduce((s,{block:o})=>s+o.left+o.right,0)+(t.length-1)*18,r=t.length===1?-t[0].block.left:-n/2,i=-r;for(let{
unit:s,block:o}of t)e(s,r+o.left,o),r+=o.left+o.right+18;return[i,r-18]}function ui(t,e){let n=ai(t,e,0),r=[],i=[],s=zn(t),o=(l,c,h,p,d)=>{let m=-l-1,y=l>=0,w={
unit:l,x:h-(y?Mt/2:c.left),y:p,w:y?Mt:c.left+c.right,h:c.height,mid:h,kind:y?"node":c.inside?"open":"folded",level:d};if(r.push(w),!c.inside)return;for(let _ of c.
inside)o(_.unit,_.block,h+_.x,p+_.y,d+1);let b=se(t,e,m);i.push(...Uo(t,b,m,c,h,p,s))};o(z(0),n,0,0,0);let a=new Map(r.map(l=>[l.unit,l])),u=new Map(i.map(l=>[Fn(
l.within,l.side,l.from,l.to),l]));return{boxes:r,lines:i,byUnit:a,lineOf:u,left:-n.left,right:n.right,height:n.height}}function Fn(t,e,n,r){return`${t}/${e}/${n??
"in"}/${r??"out"}`}function zn(t){let e=Math.max(1,t.frame(0).counts[2],...t.data.saved.map(n=>n[2]));return n=>Math.min(20,Math.max(1.6,20*Math.cbrt(n/e)))}function Uo(t,e,n,r,i,s,o){
let a=t.data.layouts[t.frame(e).layout],{units:u}=t.frame(e),l=new Map(r.inside.map(h=>[h.unit,h])),c=[];for(let h of["left","right"]){let p=Lo(a,h,u,l),d=new Set;
a[h].forEach((m,y)=>{let w=Do(m,h,u,l,r,p[y]),b=m[2]<0?Bo(w[0],w[1]):Fo(w,m,h,r);c.push(ni(b,i,s,{within:n,side:h,from:m[0]<0?null:u[m[0]],to:m[1]<0?null:u[m[1]],
width:1.3+Math.log2(Math.max(1,m[4]))*.35,label:d.has(m[0])?"":t.text(m[3]).replace(/\].*$/,"]")})),d.add(m[0])})}return a.bridges.forEach((h,p)=>{let d=Vo(h,u,
l,r,p);c.push(ni(d,i,s,{within:n,side:"bridge",from:h[0]<0?null:u[h[0]],to:h[1]<0?null:u[h[1]],width:o(h[2]),label:`${h[2]}`}))}),c}function ni(t,e,n,r){let i=t.
parts.flatMap(([,...c])=>c),[s,o]=[i.map(c=>c[0]+e),i.map(c=>c[1]+n)],[a,u]=[Math.min(...s),Math.min(...o)],l=t.parts.map(([c,...h])=>c+h.map(p=>`${ri(p[0]+e)},${ri(
p[1]+n)}`).join(" ")).join("");return{...r,d:l,at:[t.at[0]+e,t.at[1]+n],box:[a,u,Math.max(...s)-a,Math.max(...o)-u]}}var ri=t=>Math.round(t*10)/10;function Lo(t,e,n,r){
let i=new Map,s=t[e].map(()=>0);t[e].forEach((a,u)=>i.set(a[1],[...i.get(a[1])??[],u]));let o=a=>{let[u,,l]=t[e][a],c=e==="left"?-1:1;return l>=0?c*(1e4+l):u<0?
c*ie:r.get(n[u]).x};for(let[a,u]of i){if(u.length<2||a<0)continue;u.sort((c,h)=>o(c)-o(h));let l=Math.min(Mt*.6,u.length*16);u.forEach((c,h)=>s[c]=((h+.5)/u.length-
.5)*l)}return s}function Do([t,e],n,r,i,s,o){let a=n==="left",u=a?-1:1,[l,c]=[ze,s.height-Dn],h=d=>{let m=d===a?l:c;return{x:u*ie,y:m,clear:m}},p=(d,m)=>{if(d<0)
return h(m);let y=i.get(r[d]),w=m===a;return{x:y.x+(y.unit<0?u*ie:0)+(m?0:o),y:w?y.y+y.block.height:y.y,clear:w?s.bottoms[y.row]:s.tops[y.row]}};return[p(t,!0),
p(e,!1)]}function Bo(t,e){let n=Math.sign(e.clear-t.clear)||Math.sign(e.y-t.y)||1,r=li(t,n);if(Math.abs(t.x-e.x)<.5)return{parts:[["M",[t.x,t.y]],["L",[e.x,e.y]]],
at:r};let i=Math.max(10,Math.abs(e.clear-t.clear)/2)*n,s=["C",[t.x,t.clear+i],[e.x,e.clear-i],[e.x,e.clear]];return{parts:[["M",[t.x,t.y]],["L",[t.x,t.clear]],s,
["L",[e.x,e.y]]],at:r}}var li=(t,e)=>[t.x+5,t.y+(e>0?12:-6)];function Fo([t,e],n,r,i){let s=n[2],o=r==="left"?-1:1,a=i.walls[r==="left"?0:1]+o*(s+1)*oi,u=r==="l\
eft"?1:-1,l=5+s%4*2.5,[c,h]=[t.clear+u*l,e.clear-u*l],p=[[t.x,t.y],[t.x,c],[a,c],[a,h],[e.x,h],[e.x,e.y]];return{parts:zo(p),at:li(t,u)}}function zo(t){let e=[[
"M",t[0]]];for(let n=1;n<t.length-1;n++){let[r,i,s]=[t[n-1],t[n],t[n+1]],o=Math.min(6,Ln(r,i)/2,Ln(i,s)/2);e.push(["L",ii(i,r,o)],["Q",i,ii(i,s,o)])}return e.push(
["L",t[t.length-1]]),e}var Ln=(t,e)=>Math.hypot(t[0]-e[0],t[1]-e[1]);function ii(t,e,n){let r=Ln(t,e)||1;return[t[0]+(e[0]-t[0])*n/r,t[1]+(e[1]-t[1])*n/r]}function Vo([
t,e],n,r,i,s){let[o,a]=[t,e].map(y=>y<0?void 0:r.get(n[y])),u=(y,w)=>y?y.y+y.block.height/2:w,[l,c]=[u(o,ze),u(a,i.height-Dn)],h=(y,w,b,_)=>y?y.unit>=0?{x:y.x+_*
Mt/2,y:w,sideways:!0}:{x:y.x,y:b>w?y.y+y.block.height:y.y,sideways:!1}:{x:0,y:w,sideways:!1},[p,d]=[h(o,l,c,1),h(a,c,l,-1)],m=p.sideways&&d.sideways?(s*4%9-4)*4:
0;return Ro(p,d,m)}function Ro(t,e,n){let r=[(t.x+e.x)/2,(t.y+e.y)/2],i=Math.abs(e.y-t.y),s=Math.sign(e.y-t.y);if(i<3||t.x===e.x&&!t.sideways&&!e.sideways)return{
parts:[["M",[t.x,t.y]],["L",[e.x,e.y]]],at:r};let o=[t.x,t.y],a=[e.x,e.y];if(i<60){let m=t.sideways?[(t.x+e.x)/2,t.y]:[t.x,(t.y+e.y)/2],y=e.sideways?[(t.x+e.x)/
2,e.y]:[e.x,(t.y+e.y)/2];return{parts:[["M",o],["C",m,y,a]],at:r}}let u=s*24,[l,c]=[[n,t.y+u],[n,e.y-u]],h=t.sideways?[n,t.y]:[t.x,t.y+u*.6],p=e.sideways?[n,e.y]:
[e.x,e.y-u*.6],d=(m,y)=>m.sideways?y:[n,y[1]];return{parts:[["M",o],["C",h,d(t,h),l],["L",c],["C",d(e,p),p,a]],at:[n,r[1]]}}var Go=28;function Ve(t){let e=new Set,n={open:e,turn:new Map},r=[0],i=1,s=a=>t.frame(se(t,n,a)).units.length,o=a=>t.frame(a).counts[0]+t.frame(a).counts[1];for(;r.
length;){r.sort((u,l)=>o(l)-o(u));let a=r.shift();if(a!==0&&i+s(a)>Go)break;e.add(t.alike[a]),i+=s(a);for(let u of t.frame(se(t,n,a)).units)u<0&&r.push(-u-1)}return n}
function ci(t,e,n){let r=new Set;return t.data.frames.forEach((i,s)=>{t.depth[s]<n&&r.add(t.alike[s])}),{open:r,turn:e.turn}}function fi(t,e){let n=t.deepest+1;
return t.data.frames.forEach((r,i)=>{!t.isTurn(i)&&!Ht(t,e,i)&&(n=Math.min(n,t.depth[i]))}),n}function hi(t,e,n){let r=new Set(e.open),i=t.alike[n];return r.delete(
i)||r.add(i),{open:r,turn:e.turn}}function di(t,e,n){let r=new Set(e.open),i=s=>{r.add(t.alike[s]);for(let o of t.frame(s).units)o<0&&i(-o-1)};return i(n),{open:r,
turn:e.turn}}function pi(t,e,n,r){let i=t.frame(n).units.length-1;return{open:e.open,turn:new Map(e.turn).set(t.alike[n],Math.max(0,Math.min(i,r)))}}function Re(t,e,n){
let[r,i]=[new Set(e.open),new Map(e.turn)],s=n;for(let o of t.above(n))t.frame(o).kind==="loop"&&i.set(t.alike[o],t.framePlace[-s-1]),r.add(t.alike[o]),s=z(o);return{
open:r,turn:i}}function St(t,e,n){let r=z(0);for(let i of[...t.above(n).reverse().map(z),n])e.byUnit.has(i)&&(r=i);return r}function Vn(t,e,n){let r=[`pair=${t}`];
e!==null&&r.push(e<0?`frame=${-e-1}`:`step=${e}`),r.push(`open=${Ho([...n.open])}`);let i=[...n.turn].filter(([,s])=>s).map(([s,o])=>`${s}:${o}`);return`#${[...r,
...i.length?[`turn=${i.join(".")}`]:[]].join("&")}`}function Ho(t){let e=[];for(let n of t.sort((r,i)=>r-i)){let r=e.at(-1);r&&r[1]===n-1?r[1]=n:e.push([n,n])}return e.
map(([n,r])=>n===r?`${n}`:`${n}-${r}`).join(".")}function mi(t,e){let n=new Map(t.replace(/^#/,"").split("&").map(l=>l.split("=",2))),r=(l,c)=>{let h=n.get(l),p=Number(
h);return h&&/^\d+$/.test(h)&&p<c?p:null},i=r("pair",e.length)??0,s=e[i],[o,a]=[r("step",s.count),r("frame",s.data.frames.length)],u=o??(a===null?null:z(a));return{
pair:i,unit:u,opened:n.has("open")?Wo(n.get("open"),n.get("turn")??""):null}}function Wo(t,e){let n=new Set,r=new Map;for(let[,i,s]of t.matchAll(/(\d{1,6})(?:-(\d{1,6}))?/g))
for(let o=Number(i);o<=Number(s??i);o++)n.add(o);for(let[,i,s]of e.matchAll(/(\d{1,6}):(\d{1,6})/g))r.set(Number(i),Number(s));return{open:n,turn:r}}function Gn(t,e){let{nodes:n,saved:r}=t.data,i=t.isForward(e),s=i?t.pulled[e]:n.partners[e],o=[...new Set(n.inputs[e])],a=i?(t.savedFrom.get(e)??[]).map(([u,l])=>({
value:e,users:t.usersOf(u),bytes:l})):r.filter(([,u])=>o.includes(u)).map(([u,,l])=>({value:u,users:[e],bytes:l}));return{partners:s,inputs:o,users:t.usersOf(e),
saved:a}}function Rn(t,e,n,r,i){let s=[],o=m=>{let y=St(t,e,m),w=t.above(y).filter(b=>e.byUnit.has(-b-1));return{shown:y,frames:w}},[a,u]=[o(n),o(r)],l=a.frames.
find(m=>u.frames.includes(m));if(l===void 0||a.shown===u.shown)return s;let c=(m,y,w)=>{let b=e.lineOf.get(Fn(m,i,y,w));b&&s.push(b)},h=m=>m.frames.slice(0,m.frames.
indexOf(l)),p=a.shown;for(let m of h(a))[p]=[-m-1,c(m,p,null)];let d=u.shown;for(let m of h(u))[d]=[-m-1,c(m,null,d)];return c(l,p,d),s}function gi(t,e,n){let r=new Map,
i=new Set,s=new Set,o=St(t,e,n),a=(c,h)=>{let p=St(t,e,c);s.add(c),p!==o&&!r.has(p)&&e.byUnit.get(p).kind!=="open"&&r.set(p,h)};if(r.set(o,"self"),n<0){for(let c of e.
lines)(c.from===n||c.to===n)&&i.add(c);return{units:r,lines:i,steps:s}}let u=Gn(t,n),l=t.isForward(n)?"left":"right";u.partners.forEach(c=>a(c,"partner"));for(let{
value:c,users:h}of u.saved)for(let p of h){if(c<t.count){a(c,"saved");for(let d of Rn(t,e,c,p,"bridge"))i.add(d)}a(p,"saved")}for(let c of u.inputs)if(!(c>=t.count)){
a(c,"input");for(let h of Rn(t,e,c,n,l))i.add(h)}for(let c of u.users){a(c,"user");for(let h of Rn(t,e,n,c,l))i.add(h)}return{units:r,lines:i,steps:s}}function gt({model:t,value:e,go:n}){return e<0||e>=t.count?f("span",{class:"port",title:t.specOf(e),children:f("bdi",{children:t.nameOf(e)})}):f("button",{class:`\
link ${t.isForward(e)?"forward":"backward"}`,title:t.call(e),onClick:()=>n(e),children:f("bdi",{children:t.nameOf(e)})})}function oe({model:t,values:e,go:n,most:r=8}){
return e.length?f("span",{class:"links",children:[e.slice(0,r).map(i=>f(gt,{model:t,value:i,go:n},i)),e.length>r&&f("span",{class:"soft",children:["and ",M(e.length-
r)," more"]})]}):f("span",{class:"soft",children:"none"})}function Ge({share:t,side:e}){return f("svg",{class:`bar ${e}`,width:"48",height:"8","aria-hidden":"tr\
ue",children:[f("rect",{width:"48",height:"8",rx:"2",class:"track"}),f("rect",{width:Math.max(t>0?1:0,48*Math.min(1,t)),height:"8",rx:"2"})]})}var qo=60,ut=class extends V{state={
sort:this.props.sort,most:qo};sorted(){let[e,n]=this.state.sort,{value:r}=this.props.columns[e],i=new Map(this.props.rows.map(s=>[s,r(s)]));return[...this.props.
rows].sort((s,o)=>{let[a,u]=[i.get(s),i.get(o)];return n*(a<u?-1:a>u?1:0)})}render({columns:e,rows:n,empty:r}){if(!n.length)return f("p",{class:"soft",children:r});
let{sort:[i,s],most:o}=this.state,a=e.map(l=>typeof l.value(n[0])=="number"),u=(l,c)=>f("th",{class:a[c]?"r":"","aria-sort":i===c?s>0?"ascending":"descending":void 0,
children:f("button",{onClick:()=>this.setState({sort:[c,i===c?s>0?-1:1:a[c]?-1:1]}),children:l.name})},c);return f("div",{class:"table",children:[f("table",{children:[
f("thead",{children:f("tr",{children:e.map(u)})}),f("tbody",{children:this.sorted().slice(0,o).map((l,c)=>f("tr",{children:e.map((h,p)=>f("td",{class:a[p]?"r":"",
children:h.cell(l)}))},c))})]}),n.length>o&&f("button",{class:"more",onClick:()=>this.setState({most:o*5}),children:["show more: ",M(o)," of ",M(n.length)]})]})}};function yi(t){let{selected:e}=t;return e===null?f(Ko,{...t}):e<0?f(Xo,{...t,id:-e-1}):f(Yo,{...t,node:e})}function Hn({rows:t}){return f("dl",{children:t.map(([
e,n])=>n!==""&&n!==null&&[f("dt",{children:e},e),f("dd",{children:n},`${e} `)])})}function Ko({page:t,model:e}){let[n,r,i,s,o]=e.frame(0).counts;return f("div",
{class:"panel",children:[f("h2",{children:f("bdi",{children:t.title})}),f(Hn,{rows:[["Forward",`${rt(n,"step")}${s?`, ${dt(s)} in products`:""}`],["Backward",r?
`${rt(r,"step")}${o?`, ${dt(o)} in products`:""}`:"this graph has no backward"],["Saved",I(i)],["Peak",e.timed?I(e.data.memory.peak[1]):""],["Changes",An(e,0)],
...t.facts.map(([a,u])=>[a,f("bdi",{children:u})])]}),t.notes.map(a=>f("p",{class:"remark",children:f("bdi",{children:a})},a)),f("p",{class:"soft",children:"The\
 forward runs down on the left, the backward up on the right. Bands between them are saved tensors. Click a frame to open it, a step to see what belongs to it."})]})}
function Xo({model:t,opened:e,id:n,go:r,onFold:i,onOpenAll:s,onTurn:o}){let a=t.frame(n),[u,l,c,h,p]=a.counts,d=a.kind==="loop"?Dt(t,e,n):-1,m=a.kind==="loop"?[]:
[...t.inside(n)].filter(y=>t.data.nodes.product[y]>0).sort((y,w)=>t.data.nodes.product[w]-t.data.nodes.product[y]).slice(0,6);return f("div",{class:"panel",children:[
f("h2",{children:f("bdi",{children:[t.path(n)||t.title(n),d>=0?` × ${a.units.length}`:""]})}),f("p",{class:"buttons",children:[f("button",{onClick:()=>i(n),children:Ht(
t,e,n)?"close":"open"}),f("button",{onClick:()=>s(n),children:"open all inside"})]}),d>=0&&f("p",{class:"turns",children:[f("button",{"aria-label":"previous tur\
n",disabled:d===0,onClick:()=>o(n,d-1),children:"‹"}),f("label",{children:["turn ",f("input",{type:"number",min:1,max:a.units.length,value:d+1,onChange:y=>o(n,
Number(y.currentTarget.value)-1)})," of ",M(a.units.length)]}),f("button",{"aria-label":"next turn",disabled:d===a.units.length-1,onClick:()=>o(n,d+1),children:"\
›"}),f("bdi",{class:"soft",children:t.path(-a.units[d]-1)})]}),f(Hn,{rows:[["Kind",a.kind==="loop"?`loop of ${M(a.units.length)}`:a.kind],[a.kind==="module"?"\
Class":"Code",a.label?f("bdi",{children:t.text(a.label)}):""],["Forward",`${rt(u,"step")}${h?`, ${dt(h)}`:""}`],["Backward",`${rt(l,"step")}${p?`, ${dt(p)}`:""}`],
["Saved",I(c)],["Changes",An(t,n)],["Largest products",m.length?f(oe,{model:t,values:m,go:r}):""],["Inside",a.parent>=0?f("button",{class:"link",onClick:()=>r(z(
a.parent)),children:f("bdi",{children:t.title(a.parent)})}):""]]})]})}function Yo({page:t,model:e,node:n,go:r,jump:i}){let{nodes:s,sources:o}=e.data,a=Gn(e,n),u=e.
isForward(n),l=o[s.source[n]],c=e.data.ports.filter(p=>!p.into&&p.role!=="saved"&&p.value===n),h=e.above(n).filter(p=>p>0).reverse();return f("div",{class:"pane\
l",children:[f("h2",{class:u?"forward":"backward",children:f("bdi",{children:e.nameOf(n)})}),f("p",{class:"soft",children:`${u?"Forward":"Backward"}, step ${M(n+
1)} of ${M(e.count)}`}),f("pre",{children:f("bdi",{children:e.call(n)})}),e.marks.has(n)&&f(Tn,{page:t,model:e,node:n,jump:i}),f(Hn,{rows:[["Operator",`${e.text(
s.op[n])} (${e.kinds[n]})`],["Type",f("code",{children:e.text(s.spec[n])})],[u?"In the backward":"In the forward",f(oe,{model:e,values:a.partners,go:r})],["Echo",
e.echoOf(n)],["Inputs",f(oe,{model:e,values:a.inputs,go:r})],["Users",f(oe,{model:e,values:a.users,go:r})],["Leaves as",c.length?f("span",{class:"links",children:c.
map(p=>f("span",{class:"port",title:e.text(p.spec),children:[p.role," ",f("bdi",{children:e.text(p.name)})]}))}):""],["Saved",a.saved.length?a.saved.map(p=>f("d\
iv",{children:[I(p.bytes)," ",u?"for ":"from ",u?f(oe,{model:e,values:p.users,go:r}):f(gt,{model:e,value:p.value,go:r})]},p.value)):""],["FLOPs",s.product[n]||s.
other[n]?[s.product[n]&&`${ne(s.product[n])} in products`,s.other[n]&&`${ne(s.other[n])} in others`].filter(Boolean).join(", "):""],["Bytes",e.timed?`${I(s.read[n])}\
 read, ${I(s.written[n])} written${e.isView(n)?", a view":s.memory[n]?`, ${I(s.memory[n])} new`:""}`:""],["Live",e.timed?I(e.data.memory.live[n]):""],["Source",
l?f("span",{children:[f("bdi",{children:e.lineOf(n)}),l[2]?f("span",{class:"soft",children:[" in ",f("bdi",{children:e.text(l[2])})]}):"",f("code",{class:"sourc\
e",children:f("bdi",{children:e.text(l[3])})})]}):""],["Module",l&&e.moduleOf(n)?f("bdi",{children:e.moduleOf(n)}):""],["Within",h.length?f("span",{class:"links",
children:h.map(p=>f("button",{class:"link",onClick:()=>r(z(p)),children:f("bdi",{children:e.title(p)})},p))}):""],...Zo(e,n)]})]})}function Zo(t,e){let n=t.data.
stats?.value.indexOf(e)??-1;if(n<0)return[];let[r,i,s,o,a,u,l,c,h]=t.data.stats.rows[n];return[["NaN and Inf",f("span",{class:l||c?"alarm":"",children:`${M(l)} \
NaN, ${M(c)} Inf of ${M(r)}`})],["Values",`${Ut(i)} to ${Ut(s)}, mean ${Ut(o)}, deviation ${Ut(a)}, norm ${Ut(u)}, ${M(h)} zero`]]}var bi=`/* The picture alone: also inside exported files. Okabe and Ito's colours, which colour-blind people tell apart. */
:root { --fwd: #0072b2; --fwd-soft: #e6f1f8; --fwd-line: #8fbcd9; --bwd: #c25400; --bwd-soft: #fcefe4; --bwd-line: #e5b38c;
  --save: #00805e; --save-soft: #cdebe1; --ink: #1c2127; --soft: #616b76; --line: #cfd6de; --paper: #ffffff; --band: #f6f8fa;
  --grey: #eef0f3; --found: #f5d000; --found-ink: #3a3200; --alarm: #c0182b; --alarm-ink: #ffffff; --mark: #8a2f9e; }
@media (prefers-color-scheme: dark) { :root { --fwd: #6fbdec; --fwd-soft: #15293a; --fwd-line: #386a8c; --bwd: #f0a35e; --bwd-soft: #352415;
  --bwd-line: #8a5a2f; --save: #45cfa5; --save-soft: #14453a; --ink: #e7eaee; --soft: #9aa5b1; --line: #38414c; --paper: #14181d; --band: #1a1f26;
  --grey: #262c34; --found: #d7b600; --found-ink: #1c1900; --alarm: #ff6b78; --alarm-ink: #23060a; --mark: #dd9cec; } }
@media print { :root { --fwd: #0072b2; --fwd-soft: #e6f1f8; --fwd-line: #8fbcd9; --bwd: #c25400; --bwd-soft: #fcefe4; --bwd-line: #e5b38c;
  --save: #00805e; --save-soft: #cdebe1; --ink: #1c2127; --soft: #616b76; --line: #cfd6de; --paper: #ffffff; --band: #f6f8fa; --grey: #eef0f3; --mark: #8a2f9e; \
} }
.picture { font: 11.5px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; background: var(--paper); }
.picture text { fill: var(--ink); unicode-bidi: isolate; user-select: none; }
.picture .soft { fill: var(--soft); }
.picture .paper { fill: var(--paper); }
.line path { fill: none; stroke-linecap: butt; }
.line.left path { stroke: var(--fwd-line); } .line.right path { stroke: var(--bwd-line); stroke-dasharray: 6 2.5; }
.line.bridge path { stroke: var(--save); opacity: .28; }
.line.left.bright path { stroke: var(--fwd); } .line.right.bright path { stroke: var(--bwd); } .line.bridge.bright path { opacity: .85; }
.picture .line text { font-size: 9px; fill: var(--soft); paint-order: stroke; stroke: var(--paper); stroke-width: 3px; stroke-linejoin: round; }
.picture .line.bridge text { fill: var(--save); font-weight: 600; } .picture .middle { text-anchor: middle; }
.tip.left path { fill: var(--fwd-line); } .tip.right path { fill: var(--bwd-line); }
.step > rect { stroke-width: 1.1; } .step.forward > rect { fill: var(--fwd-soft); stroke: var(--fwd); }
.step.backward > rect { fill: var(--bwd-soft); stroke: var(--bwd); }
.step.view > rect, .step.guard > rect { fill: var(--grey); stroke: var(--line); } .picture .step.view > text { fill: var(--soft); font-size: 10px; }
.step .kept { fill: var(--save); stroke: var(--paper); stroke-width: 1; }
.step[role], .folded, .head, .turn { cursor: pointer; }
.picture .pill rect { fill: var(--paper); stroke: var(--line); stroke-width: 1; } .picture .pill text { font-size: 9.5px; text-anchor: middle; fill: var(--soft)\
; }
.picture .pill.gradient rect { fill: var(--bwd); stroke: var(--bwd); } .picture .pill.gradient text { fill: var(--paper); font-weight: 600; }
.picture .pill.mutation rect { fill: var(--paper); stroke: var(--fwd); stroke-dasharray: 2 1.5; } .picture .pill.mutation text { fill: var(--fwd); }
.picture .pill.input rect, .picture .pill.tangent rect { stroke: var(--soft); } .picture .pill.input text, .picture .pill.tangent text { fill: var(--ink); }
.picture .pill.output rect { fill: var(--fwd); stroke: var(--fwd); } .picture .pill.output text { fill: var(--paper); font-weight: 600; }
.frame.open .body { fill: var(--paper); stroke: var(--line); stroke-width: 1.2; } .frame.open.odd .body { fill: var(--band); }
.tint { opacity: .35; } .tint.forward { fill: var(--fwd-soft); } .tint.backward { fill: var(--bwd-soft); }
.head rect { fill: var(--grey); opacity: .75; } .head:hover rect { opacity: 1; }
.picture .title { font-weight: 600; } .picture .sign { fill: var(--soft); font-weight: 400; }
.folded .hit { fill: var(--paper); } .folded .hit.odd { fill: var(--band); } .folded .half rect { stroke-width: 1.3; }
.half.forward rect { fill: var(--fwd-soft); stroke: var(--fwd); } .half.backward rect { fill: var(--bwd-soft); stroke: var(--bwd); }
.folded .half.empty rect { fill: none; stroke: var(--line); stroke-dasharray: 3 3; } .folded .half rect.behind { fill: var(--paper); opacity: .7; }
.folded .band { stroke: var(--save); opacity: .6; fill: none; } .picture .size { fill: var(--save); text-anchor: middle; font-size: 9.5px; font-weight: 600; pai\
nt-order: stroke; stroke: var(--paper); stroke-width: 3px; }
.folded.steps .half rect, .folded.line .half rect { stroke-width: 1; }
.stepper .plate { fill: var(--paper); stroke: var(--line); } .picture .stepper text { text-anchor: middle; font-weight: 600; }
.turn rect { fill: transparent; } .turn:hover rect { fill: var(--grey); } .turn.off { opacity: .25; pointer-events: none; }
.picture .step.added > rect, .picture .step.changed > rect, .picture .step.removed > rect { stroke: var(--mark); stroke-width: 2.4; } .picture .step.removed > r\
ect { stroke-dasharray: 5 3; }
.changemark { pointer-events: none; } .picture .changemark rect { fill: var(--mark); stroke: var(--paper); stroke-width: 1; } .picture .changemark text { fill: \
var(--paper); font-size: 11px; font-weight: 700; text-anchor: middle; }
.badmark rect { fill: var(--alarm); stroke: none; } .picture .badmark text { fill: var(--alarm-ink); font-size: 9px; font-weight: 700; text-anchor: middle; }
.picture .step.bad > rect { stroke: var(--alarm); stroke-width: 2.4; }
.picture .step.match > rect { stroke: var(--found); stroke-width: 3; } .found rect { fill: var(--found); } .picture .found text { fill: var(--found-ink); font-s\
ize: 10px; font-weight: 700; text-anchor: middle; }
.ring { fill: none; pointer-events: none; stroke-width: 2.5; stroke: var(--ink); }
.picture .is-self > rect:not(.hit), .picture .is-self > .half > rect:not(.behind) { stroke: var(--ink); stroke-width: 2.6; }
.picture .is-partner > rect:not(.hit), .picture .is-partner > .half > rect:not(.behind) { stroke-width: 2.6; }
.picture .is-partner.forward > rect { fill: var(--fwd-line); } .picture .is-partner.backward > rect { fill: var(--bwd-line); }
.picture .is-input > rect:not(.hit), .picture .is-user > rect:not(.hit) { stroke-width: 2; }
.picture .is-saved > rect:not(.hit), .picture .is-saved > .half > rect:not(.behind) { stroke: var(--save); stroke-width: 2.4; }
`;function We(t){return{near:t>.42,close:t>.78,title:Math.min(120,Math.max(12,9.5/t))}}var Qo=24,Jo=6.9;function Wn({line:t,detail:e,bright:n}){let r=t.side==="br\
idge"||!e.near?void 0:`url(#tip-${t.side})`,i=t.side==="bridge"?I(Number(t.label)):t.label;return f("g",{class:`line ${t.side}${n?" bright":""}`,children:[f("pa\
th",{d:t.d,"stroke-width":t.width,"marker-end":r}),e.close&&t.side!=="bridge"&&i&&f("text",{x:t.at[0],y:t.at[1],children:kt(i,26)}),e.close&&t.side==="bridge"&&
n&&t.label!=="0"&&f("text",{x:t.at[0],y:t.at[1],class:"middle",children:i})]})}function qn(t){let{box:e}=t;return e.kind==="node"?f(ta,{...t}):e.kind==="folded"?
f(ra,{...t}):f(sa,{...t})}function ta({model:t,box:e,detail:n,marks:r,role:i}){let s=e.unit,o=t.isForward(s)?"forward":"backward",a=t.bad.get(s),u=t.marks.get(s)?.
kind,l=t.isView(s)?20:28,c=e.y+(e.h-l)/2,h=c+l/2+4,p=["step",o,t.isView(s)&&"view",t.kinds[s]==="guard"&&"guard",a&&"bad",u,i,r.steps?.has(s)&&"match"],d=t.shorts[s],
m=t.nameOf(s),y=d==="getitem"?m:ea(m,d),w=Math.floor((e.w-14)/Jo),b=d==="getitem"?"":kt(d,w),_=w-b.length;return f("g",{class:p.filter(Boolean).join(" "),"data-\
unit":s,role:"button","aria-label":`${d} ${m}${u?`, ${u}`:""}`,children:[f("rect",{x:e.x,y:c,width:e.w,height:l,rx:t.isView(s)?3:5}),n.near&&f("text",{x:e.x+7,y:h,
children:[b,_>1&&f("tspan",{class:"soft",children:kt(y,_)})]}),t.isSaved(s)&&f("circle",{class:"kept",cx:e.x+e.w,cy:e.y+e.h/2,r:3}),a&&f(wi,{x:e.x+e.w-26,y:c-6,
bad:a}),u&&f(Kn,{x:e.x,y:c,text:Lt[u],detail:n}),n.near&&f(na,{model:t,box:e})]})}function ea(t,e){let n=e.replace(/^_+/,"");return t===e||t===n?"":t.startsWith(
n)?t.slice(n.length):` ${t}`}function wi({x:t,y:e,bad:n}){return f("g",{class:"badmark",children:[f("rect",{x:t,y:e,width:30,height:13,rx:6.5}),f("text",{x:t+15,
y:e+9.7,children:n.nan?"NaN":"Inf"})]})}function Kn({x:t,y:e,text:n,detail:r}){let i=Math.max(15,n.length*7.6+7),s=n.length>1?0:-7.5,o=r.near?1:Math.min(3,r.title/
14);return f("g",{class:"changemark",transform:`translate(${t} ${e}) scale(${o})`,children:[f("rect",{x:s,y:-8,width:i,height:15,rx:7.5}),f("text",{x:s+i/2,y:3.6,
children:n})]})}function _i(t){return mt.filter(e=>t[e]).map(e=>`${Lt[e]}${t[e]}`).join(" ")}function na({model:t,box:e}){let{left:n,right:r}=Bn(t,e.unit),i=e.y+
e.h/2,s=(o,a)=>o.map((u,l)=>{let c=ge(u.text),h=a<0?e.x-5-c:e.x+e.w+5,p=i+(l-o.length/2)*15;return f(xi,{...u,x:h,y:p,wide:c})});return f("g",{children:[s(n,-1),
s(r,1)]})}function ra({model:t,box:e,detail:n,marks:r,role:i}){let s=-e.unit-1,o=t.frame(s),[a,u,l,c,h]=o.counts,[p,d]=[e.mid-at,e.mid+at],m=e.y+e.h/2,y=zn(t)(l),
w=o.kind==="loop",b=r.matches?.get(s),_=t.marked.get(s),O=($,T,P,U,K,Q)=>f("g",{class:`half ${$}${U?"":" empty"}`,children:[w&&[6,3].map(G=>f("rect",{class:"beh\
ind",x:T+($==="forward"?-G:G),y:e.y+G,width:P,height:e.h,rx:6})),f("rect",{x:T,y:e.y,width:P,height:e.h,rx:6}),Q&&f("text",{class:"title",x:T+10,y:n.near?e.y+20:
m+n.title*.35,"font-size":Math.min(n.title,26),children:Q}),n.near&&f("text",{class:"soft",x:T+10,y:e.y+(Q?38:20),children:U?rt(U,"step"):"no step"}),n.near&&K>
0&&f("text",{class:"soft",x:T+P-10,y:e.y+38,"text-anchor":"end",children:dt(K)})]});return f("g",{class:`frame folded ${o.kind} ${i??""} ${b?"match":""}`,"data-\
unit":e.unit,role:"button","aria-expanded":"false","aria-label":He(t,s),children:[f("rect",{class:e.level%2?"hit":"hit odd",x:e.x,y:e.y,width:e.w,height:e.h}),O(
"forward",e.x,p-e.x,a,c,kt(He(t,s),Math.floor((p-e.x-16)/(Math.min(n.title,26)*.58)))),O("backward",d,e.x+e.w-d,u,h),l>0&&f("path",{class:"band",d:`M${p} ${m}H${d}`,
"stroke-width":y}),l>0&&n.near&&f("text",{class:"size",x:e.mid,y:m-y/2-4,children:I(l)}),t.badFrames.has(s)&&f(wi,{x:p-36,y:e.y-6,bad:{nan:1,inf:0}}),_&&f(Kn,{x:d+
8,y:e.y,text:_i(_),detail:n}),b&&n.near&&f(ia,{x:e.x+4,y:e.y-7,count:b})]})}function ia({x:t,y:e,count:n}){let r=String(n).length*7+10;return f("g",{class:"foun\
d",children:[f("rect",{x:t,y:e,width:r,height:14,rx:7}),f("text",{x:t+r/2,y:e+10.5,children:n})]})}function He(t,e){let n=t.frame(e),r=t.title(e),i=t.text(n.label),
s=n.kind==="loop"?` × ${n.units.length}`:"";return`${r}${s}${i&&i!==r?`  ${i}`:""}`}function sa({model:t,opened:e,box:n,detail:r,role:i}){let s=-n.unit-1,o=t.frame(
s),a=n.mid-at-n.x,u=t.marked.get(s),l=Math.min(r.title,Math.max(12,Math.min(n.h*.1,60)));return f("g",{class:`frame open ${o.kind} ${n.level%2?"odd":""} ${i??""}`,
"data-unit":n.unit,children:[f("rect",{class:"body",x:n.x,y:n.y,width:n.w,height:n.h,rx:8}),f("rect",{class:"tint forward",x:n.x,y:n.y,width:a,height:n.h,rx:8}),
f("rect",{class:"tint backward",x:n.mid+at,y:n.y,width:n.x+n.w-n.mid-at,height:n.h,rx:8}),f("g",{"data-fold":s,class:"head",role:"button","aria-expanded":"true",
"aria-label":`close ${He(t,s)}`,children:[f("rect",{x:n.x,y:n.y,width:n.w,height:Qo,rx:8}),f("text",{class:"title",x:n.x+10,y:n.y+(l>13?l:16.5),"font-size":l,children:[
r.near&&f("tspan",{class:"sign",children:"− "}),kt(He(t,s),Math.max(6,Math.floor(((o.kind==="loop"?n.mid-66-n.x:n.w-130)-30)/(l*.58))))]}),r.near&&o.counts[2]>
0&&f("text",{class:"soft",x:n.x+n.w-10,y:n.y+16.5,"text-anchor":"end",children:`${I(o.counts[2])} saved`})]}),o.kind==="loop"&&r.near&&f(oa,{model:t,opened:e,id:s,
x:n.mid,y:n.y}),o.kind==="loop"&&u&&f(Kn,{x:n.mid+80,y:n.y,text:_i(u),detail:r}),s===0&&r.near&&f(vi,{model:t,role:"input",middle:n.mid-ie,y:n.y-20}),s===0&&r.near&&
f(vi,{model:t,role:"tangent",middle:n.mid+ie,y:n.y+n.h+6})]})}function vi({model:t,role:e,middle:n,y:r}){let i=t.entering.filter(u=>u.role===e),o=i.slice(0,i.length>
3?2:3).map(u=>({text:kt(t.text(u.name),16),title:`${e} ${t.text(u.name)} ${t.text(u.spec)}`}));i.length>3&&o.push({text:`+${i.length-2}`,title:i.slice(2).map(u=>t.
text(u.name)).join(`
`)});let a=n-o.reduce((u,l)=>u+ge(l.text)+4,-4)/2;return f("g",{children:o.map(u=>{let l=ge(u.text),c=a;return a+=l+4,f(xi,{...u,role:e,x:c,y:r,wide:l})})})}function xi({
x:t,y:e,wide:n,text:r,title:i,role:s}){return f("g",{class:`pill ${s}`,children:[f("title",{children:i}),f("rect",{x:t,y:e+1,width:n,height:13,rx:6.5}),f("text",
{x:t+n/2,y:e+10.5,children:r})]})}function oa({model:t,opened:e,id:n,x:r,y:i}){let s=Dt(t,e,n),{units:o}=t.frame(n),a=o[s],u=(l,c,h,p)=>f("g",{class:`turn${l<0||
l>=o.length?" off":""}`,"data-loop":n,"data-turn":l,role:"button","aria-label":p,children:[f("rect",{x:c-11,y:i+3,width:22,height:18,rx:4}),f("text",{x:c,y:i+16.5,
children:h})]});return f("g",{class:"stepper",children:[f("title",{children:t.text(t.frame(-a-1).name)}),f("rect",{class:"plate",x:r-66,y:i+2,width:132,height:20,
rx:5}),u(s-1,r-54,"‹","previous turn"),f("text",{x:r,y:i+16,children:`${s+1} of ${o.length}`}),u(s+1,r+54,"›","next turn")]})}function Xn({model:t,opened:e,
boxes:n,lines:r,detail:i,marks:s}){let o=[];for(let a of n){if(o.push(f(qn,{model:t,opened:e,box:a,detail:i,marks:s},`b${a.unit}`)),a.kind!=="open")continue;let u=r.
get(-a.unit-1)??[];o.push(f("g",{class:"lines",children:[...u].sort((l,c)=>+(l.side!=="bridge")-+(c.side!=="bridge")).map(l=>f(Wn,{line:l,detail:i},l.d))},`l${a.
unit}`))}return f("g",{children:o})}function qe(){let t=e=>f("marker",{id:`tip-${e}`,class:`tip ${e}`,viewBox:"0 0 8 8",refX:"7",refY:"4",markerWidth:"7",markerHeight:"\
7",markerUnits:"userSpaceOnUse",orient:"auto",children:f("path",{d:"M0 .8L8 4L0 7.2Z"})});return f("defs",{children:[t("left"),t("right")]})}function ki(t,e){let{x:n,y:r,w:i,h:s,node:o}=t.visible(),a=document.createElementNS("http://www.w3.org/2000/svg","svg");ee([f("title",{children:e}),f("rect",{class:"\
paper",x:n,y:r,width:i,height:s}),f(qe,{}),o],a);let u={viewBox:`${n} ${r} ${i} ${s}`,width:String(Math.round(i)),height:String(Math.round(s)),class:"picture"};
for(let[c,h]of Object.entries(u))a.setAttribute(c,h);let l=new XMLSerializer().serializeToString(a).replace("</title>",`</title><style>${bi}</style>`);return ee(
null,a),`<?xml version="1.0" encoding="UTF-8"?>
${l}
`}function $i(t,e){let n=URL.createObjectURL(new Blob([e],{type:"image/svg+xml"})),r=document.createElement("a");r.href=n,r.download=t,r.click(),setTimeout(()=>URL.
revokeObjectURL(n),1e3)}async function Mi(t){try{return await navigator.clipboard.writeText(t),"The link is copied."}catch{return t}}var aa={"":1,b:1,k:1024,kib:1024,kb:1e3,m:1024**2,mib:1024**2,mb:1e6,g:1024**3,gib:1024**3,gb:1e9},Yn=["names","operators","shapes","source lines","modules","pa\
rameters"],Si=[["op:mm","steps whose operator is mm (op:mm* for those that begin with it)"],["kind:matmul","matmul, convolution, attention, norm, softmax, reduc\
tion, pointwise, embedding, copy, creation, view, guard"],["is:saved","steps whose value is saved for the backward; also is:view, is:guard"],["side:backward","s\
teps of the backward; also side:forward"],[">1MiB","steps that write more than 1 MiB; also <4KiB"],["module:layers.3","steps of this module and of those inside \
it"],["line:model.py:12","steps of a source line, or of a whole file"],["shape:3,4","values with these sizes next to one another"],["has:nan","steps whose value\
s were measured and have NaN; also has:inf"]];function Oi(t){return t.data.marks?[...Si,["is:changed","steps that changed; also is:added, is:removed"]]:Si}var Ke=class{constructor(e){
this.model=e;this.lower=e.strings.map(n=>n.toLowerCase()),this.lines=e.data.sources.map(n=>`${this.lower[n[0]]}:${n[1]}`),this.paths=e.data.frames.map((n,r)=>e.
path(r).toLowerCase()),this.codes=e.data.sources.map(n=>`${this.lower[n[2]]} ${this.lower[n[3]]}`)}model;lower;lines;codes;paths;find(e){let n=[...e.toLowerCase().
matchAll(/"([^"]*)"|(\S+)/g)].map(p=>p[1]??p[2]).filter(Boolean);if(!n.length)return null;let r=[],i=[],s=[],o=[];for(let p of n){let d=this.filterOf(p);typeof d==
"string"?o.push(d):d?r.push(d):(s.push(p),i.push(this.placesOf(p)))}let{count:a}=this.model,u=[[],[],[],[]],l=new Array(Yn.length).fill(0),c=i.length;if(!o.length)
for(let p=0;p<a;p++){let d=0;if(r.every(m=>m(p))){if(c){if(!i.every(m=>m[p]))continue;d=i[0][p];for(let m=0;m<Yn.length;m++)d&1<<m&&l[m]++}u[c?this.rank(p,s[0],
d):0].push(p)}}let h=o.length||r.length?[[],[]]:this.framesOf(s);return this.sum(h,u.flat(),l,o.join(" "))}sum([e,n],r,i,s){let{model:o}=this,a=new Map,u=0,l=new Int32Array(
o.data.frames.length);for(let h of r)o.isForward(h)&&u++,l[o.data.nodes.frame[h]]++;l.forEach((h,p)=>{if(h)for(let d=p;d>=0;d=o.frame(d).parent)a.set(d,(a.get(d)??
0)+h)});let c=i.map((h,p)=>[Yn[p],h]).filter(h=>h[1]);return{units:[...e,...r,...n],steps:new Set(r),within:a,counts:c,forward:u,problem:s}}rank(e,n,r){let{model:i}=this,
s=[i.shorts[e].toLowerCase(),this.lower[i.data.nodes.name[e]]];return s.includes(n)?0:s.some(o=>o.startsWith(n))?1:r&3?2:3}framesOf(e){let{model:n}=this,r=[[],[]],
i=new Set;return n.data.frames.forEach((s,o)=>{let a=this.lower[s.name],u=`${this.paths[o]} ${this.lower[s.label]}`;o===0||i.has(n.alike[o])||!e.every(l=>u.includes(
l))||e.some(l=>a.includes(l)||this.lower[s.label].includes(l)||l.includes("."))&&(i.add(n.alike[o]),r[a.startsWith(e[0])||this.paths[o]===e[0]?0:1].push(z(o)))}),
r}placesOf(e){let{model:n}=this,{nodes:r,sources:i}=n.data,s=Uint8Array.from(this.lower,l=>Number(l.includes(e))),o=Uint8Array.from(i,(l,c)=>(this.lines[c].includes(
e)||this.codes[c].includes(e)?8:0)|(s[l[4]]?16:0)),a=Uint8Array.from(n.entering,l=>s[l.name]?32:0),u=new Uint8Array(n.count);for(let l=0;l<n.count;l++){let c=s[r.
name[l]]|s[r.op[l]]<<1|s[r.spec[l]]<<2;r.source[l]>=0&&(c|=o[r.source[l]]);for(let h of r.inputs[l])h>=n.count&&(c|=a[h-n.count]);u[l]=c}return u}filterOf(e){let n=/^([<>])=?([\d.]+)([a-z]*)$/.
exec(e);if(n){let s=aa[n[3]];if(s===void 0)return`“${e}”: the unit is B, KiB, MiB or GiB.`;let o=Number(n[2])*s,{written:a}=this.model.data.nodes;return n[1]===
">"?u=>a[u]>o:u=>a[u]<o}let[,r,i]=/^(op|kind|is|side|module|line|shape|has):(.*)$/.exec(e)??[];return r?i?this.keyed(r,i):`“${e}” needs something behind the c\
olon.`:null}keyed(e,n){let{model:r}=this,{nodes:i,sources:s}=r.data,o=u=>`“${e}:${n}”: ${e} is one of ${u.join(", ")}.`;return{op:()=>{let u=n.endsWith("*")?
n.slice(0,-1):null,l=r.strings.map((c,h)=>this.lower[h]);return c=>{let[h,p]=[r.shorts[c].toLowerCase(),l[i.op[c]]];return u===null?h===n||p===n||p.endsWith(`.${n}`)||
p.startsWith(`${n}.`):h.startsWith(u)||p.startsWith(u)}},kind:()=>{let u=[...new Set(r.kinds)].sort();return u.includes(n)?l=>r.kinds[l]===n:o(u)},is:()=>{let u={
saved:l=>r.isSaved(l),view:l=>r.isView(l),guard:l=>r.kinds[l]==="guard"};if(r.data.marks)for(let l of mt)u[l]=c=>r.marks.get(c)?.kind===l;return Object.hasOwn(u,
n)?u[n]:o(Object.keys(u))},side:()=>n==="forward"||n==="backward"?u=>r.isForward(u)===(n==="forward"):o(["forward","backward"]),module:()=>{let u=h=>h===n||h.startsWith(
`${n}.`)||h.includes(`.${n}.`)||h.endsWith(`.${n}`),l=r.strings.map((h,p)=>u(this.lower[p])),c=this.paths.map(u);return h=>c[i.frame[h]]||i.source[h]>=0&&l[s[i.
source[h]][4]]},line:()=>{let u=this.lines.map(l=>l===n||l.endsWith(`/${n}`)||l.startsWith(`${n}:`)||l.includes(`/${n}:`));return l=>i.source[l]>=0&&u[i.source[l]]},
shape:()=>{let u=`,${n.replace(/[^\w,*]/g,"")},`,l=r.strings.map(c=>/\[/.test(c)&&`,${c.slice(c.indexOf("[")+1,c.lastIndexOf("]")).replace(/\s/g,"")},`.includes(
u));return c=>l[i.spec[c]]},has:()=>r.data.stats?n==="nan"||n==="inf"?u=>(r.bad.get(u)?.[n]??0)>0:o(["nan","inf"]):"This capture has no statistics of values, so\
 has: finds nothing."}[e]()}};var Xe=50,Ye=class extends V{state={open:!1};input=nt();componentDidMount(){this.props.mounted(this)}focus(){this.input.current.focus(),this.input.current.select()}pressed=e=>{
let{found:n,at:r,onGo:i,onLeave:s}=this.props,o=n?.units.length??0;if(e.stopPropagation(),e.key==="Escape")e.preventDefault(),this.setState({open:!1}),s();else if(o&&
(e.key==="Enter"||e.key==="ArrowDown"||e.key==="ArrowUp")){e.preventDefault();let a=e.key==="ArrowUp"||e.shiftKey;this.setState({open:e.key!=="Enter"}),i(r<0?a?
o-1:0:(r+(a?o-1:1))%o)}};render({query:e,found:n,model:r,at:i,onQuery:s,onGo:o}){return f("div",{class:"finder",role:"search",onFocusOut:a=>{a.currentTarget.contains(
a.relatedTarget)||this.setState({open:!1})},children:[f("input",{ref:this.input,type:"search",value:e,placeholder:"search: name, operator, shape, line   /","ari\
a-label":"search",spellcheck:!1,onInput:a=>{s(a.currentTarget.value),this.setState({open:!0})},onFocus:()=>this.setState({open:!0}),onKeyDown:this.pressed}),n&&
f("output",{class:"total",children:n.problem?"?":M(n.units.length)}),this.state.open&&f("div",{class:"results",tabIndex:-1,children:n?f(la,{found:n,model:r,at:i,
onGo:o}):f(ua,{model:r,onQuery:a=>{s(a),this.focus()}})})]})}};function ua({model:t,onQuery:e}){return f("div",{class:"help",children:[f("p",{class:"soft",children:"\
Words are looked for in names, operators, shapes, source lines, modules and parameters. Filters can be put beside them:"}),f("dl",{children:Oi(t).map(([n,r])=>[
f("dt",{children:f("button",{class:"link",onClick:()=>e(n),children:n})},n),f("dd",{children:r},`${n} `)])})]})}function la({found:t,model:e,at:n,onGo:r}){if(t.
problem)return f("p",{class:"alarm",children:t.problem});let i=t.steps.size-t.forward,s=t.units.length-t.steps.size,o=Math.max(0,Math.min(n-20,t.units.length-Xe));
return f("div",{children:[f("p",{class:"soft counts",children:[[t.forward&&`${M(t.forward)} forward`,i&&`${M(i)} backward`,s&&rt(s,"frame")].filter(Boolean).join(
", ")||"Nothing has these words.",t.counts.length>0&&` · in ${t.counts.map(([a,u])=>`${a} ${M(u)}`).join(", ")}`]}),f("ul",{children:t.units.slice(o,o+Xe).map(
(a,u)=>f(ca,{model:e,unit:a,chosen:o+u===n,onGo:()=>r(o+u)},a))}),t.units.length>Xe&&f("p",{class:"soft",children:`${M(o+1)} to ${M(Math.min(t.units.length,o+Xe))}\
 of ${M(t.units.length)}; Enter goes on`})]})}function ca({model:t,unit:e,chosen:n,onGo:r}){let i=s=>{s.preventDefault(),r()};if(e<0){let s=-e-1;return f("li",{
class:n?"chosen":"",onMouseDown:i,children:[f("b",{children:f("bdi",{children:t.path(s)})}),f("span",{class:"soft",children:f("bdi",{children:t.text(t.frame(s).
label)})})]})}return f("li",{class:n?"chosen":"",onMouseDown:i,children:[f("b",{class:t.isForward(e)?"forward":"backward",children:f("bdi",{children:t.nameOf(e)})}),
f("code",{children:t.specOf(e)}),f("span",{class:"soft",children:f("bdi",{children:[t.moduleOf(e),t.lineOf(e)].filter(Boolean).join("  ")})})]})}var Ei=[["/","search; Enter goes to the first, then to the next; Shift+Enter back; Escape leaves"],["↓ ↑","along the flow, as it is drawn: the forward runs \
down, the backward up"],["← →","to the partner in the other direction"],["Enter","open or close the selected frame, or the one around the selected step"],["\
Shift+Enter","open everything inside the selected frame"],["[ ]","previous or next turn of the loop around the selection"],["n p","next or previous match of the\
 search"],["1 – 9","open every frame to that depth; 0 closes all but the first"],["+ − f a","zoom in, zoom out, fit, fit all"],["m c l o i d","memory, code,\
 lines, operators, inputs and outputs, details"],["Escape","select nothing"],["wheel","move; with Ctrl or ⌘, zoom. Drag moves, too. On the time line: ← → move t\
he moment"]];function Ni(t){let e=[["n p","next or previous match of the search; without a search, next or previous change"],["h","changes"]];return t?Ei.flatMap(
n=>n[0]==="n p"?e:[n]):Ei}function Zn(t,e,n,r){if(n===null)return Ci(e);let i=n<0||t.isForward(n),s=St(t,e,n),o=u=>u<t.count?St(t,e,u):s,a=i===(r===1);for(let u of fa(
t,n,a)){let l=o(u),c=e.byUnit.get(l);if(l!==s&&c&&c.kind!=="open"&&!t.above(s).includes(-l-1))return l}return ha(e,s,r,i)}function fa(t,e,n){let r=e>=0?[e]:[...t.
inside(-e-1)].filter(o=>t.isForward(o)),i=new Set(r);return r.flatMap(o=>n?t.usersOf(o):t.data.nodes.inputs[o]).filter(o=>o<t.count&&!i.has(o)).sort((o,a)=>n?o-
a:a-o)}function ha(t,e,n,r){let i=t.byUnit.get(e);if(!i)return Ci(t);let[s,o]=[e,1/0];for(let a of t.boxes){let u=(a.y-i.y)*n;if(a.kind==="open"||u<=0||a.kind===
"node"&&a.mid<0!==r)continue;let l=u+Math.abs(a.mid-i.mid)/20;l<o&&([s,o]=[a.unit,l])}return s}function Ci(t){return t.boxes.find(e=>e.kind!=="open")?.unit??null}
function jn(t,e,n){return e===null||e<0||t.isForward(e)!==n?e:(n?t.pulled[e]:t.data.nodes.partners[e])[0]??e}var Wt=64,lt=16,Ze=class extends V{state={wide:0};frame=nt();watcher=new ResizeObserver(()=>this.setState({wide:this.frame.current.clientWidth}));shape=null;componentDidMount(){
this.watcher.observe(this.frame.current),this.setState({wide:this.frame.current.clientWidth})}componentWillUnmount(){this.watcher.disconnect()}shouldComponentUpdate(e,n){
let{model:r,moment:i,selected:s}=this.props;return e.model!==r||e.moment!==i||e.selected!==s||n.wide!==this.state.wide}get step(){return this.state.wide/Math.max(
1,this.props.model.count)}paths(){let{model:e}=this.props,{wide:n}=this.state;if(this.shape?.model===e&&this.shape.wide===n)return this.shape.paths;let{live:r}=e.
data.memory,i=Math.max(1,Pi(r)),s=Math.max(1,Math.floor(1/this.step/1.5)),o=(u,l)=>{if(u>=l)return"";let c=`M${(u*this.step).toFixed(1)} ${lt+Wt}`;for(let h=u;h<
l;h+=s){let p=Math.min(l,h+s),d=lt+Wt*(1-Pi(r,h,p)/i);c+=`L${(h*this.step).toFixed(1)} ${d.toFixed(1)}L${(p*this.step).toFixed(1)} ${d.toFixed(1)}`}return`${c}L${(l*
this.step).toFixed(1)} ${lt+Wt}Z`},a=[o(0,e.data.forward),o(e.data.forward,e.count)];return this.shape={model:e,wide:n,paths:a},a}chosen=e=>{let n=Math.floor((e.
clientX-this.frame.current.getBoundingClientRect().left)/this.step);this.props.onMoment(Math.max(0,Math.min(this.props.model.count-1,n)))};pressed=e=>{let{model:n,
moment:r,onMoment:i}=this.props,s={ArrowRight:1,ArrowLeft:-1,PageDown:10,PageUp:-10}[e.key],o=r??n.data.memory.peak[0],a=e.key==="Home"?0:e.key==="End"?n.count-
1:s===void 0?null:o+s*(e.shiftKey?10:1);a!==null&&(e.preventDefault(),e.stopPropagation(),i(Math.max(0,Math.min(n.count-1,a))))};render({model:e,moment:n,selected:r}){
let{wide:i}=this.state,{memory:s,forward:o}=e.data,[a,u]=s.peak,[l,c]=i&&e.count?this.paths():["",""],h=m=>(m+.5)*this.step,p=h(a)>i-330,d=n===null?"":`, ${I(s.
live[n])} at step ${M(n+1)}`;return f("div",{class:"timeline",ref:this.frame,tabIndex:0,role:"slider","aria-label":"live bytes over forward and backward","aria-\
valuemin":0,"aria-valuemax":Math.max(0,e.count-1),"aria-valuenow":n??Math.max(0,a),"aria-valuetext":`peak ${I(u)}${d}`,onClick:this.chosen,onMouseMove:m=>m.buttons===
1&&this.chosen(m),onKeyDown:this.pressed,children:f("svg",{width:i,height:lt+Wt+1,children:[f("path",{class:"area forward",d:l}),f("path",{class:"area backward",
d:c}),o>0&&o<e.count&&f("path",{class:"border",d:`M${o*this.step} ${lt}V${lt+Wt}`}),a>=0&&e.count>0&&f("circle",{class:"peak",cx:h(a),cy:lt,r:3.5}),a>=0&&e.count>
0&&f("text",{class:"peak",x:h(a)+(p?-8:8),y:11,"text-anchor":p?"end":"start",children:`peak ${I(u)} + ${I(s.before)} held by the caller`}),r!==null&&r>=0&&f("pa\
th",{class:"cursor selected",d:`M${h(r)} ${lt-4}V${lt+Wt}`}),n!==null&&f("path",{class:"cursor",d:`M${h(n)} ${lt-4}V${lt+Wt}`})]})})}};function Pi(t,e=0,n=t.length){
let r=0;for(let i=e;i<n;i++)t[i]>r&&(r=t[i]);return r}function da(t,e){return t.data.memory.spans.filter(([,n,r])=>n<=e&&e<=r).sort((n,r)=>r[3]-n[3])}function Ai({
model:t,moment:e,go:n,onMoment:r}){let{memory:i}=t.data,[s,o]=i.peak,a=e??s;if(a<0||!t.count)return f("div",{class:"panel",children:[f("h2",{children:"Memory"}),
f("p",{class:"soft",children:"There is no step, so nothing is live."})]});let u=da(t,a),l=u.reduce((h,p)=>h+p[3],0),c=[{name:"value",value:h=>t.nameOf(h[0]),cell:h=>f(
gt,{model:t,value:h[0],go:n})},{name:"bytes",value:h=>h[3],cell:h=>I(h[3])},{name:"as",value:h=>t.text(h[4]),cell:h=>t.text(h[4])},{name:"steps",value:h=>h[2]-h[1]+
1,cell:h=>`${M(h[1]+1)}–${h[2]<t.count?M(h[2]+1):"end"}`}];return f("div",{class:"panel",children:[f("h2",{children:"Memory"}),f("dl",{children:[f("dt",{children:"\
Step"}),f("dd",{children:[`${M(a+1)} of ${M(t.count)}: `,f(gt,{model:t,value:a,go:n})]}),f("dt",{children:"Live"}),f("dd",{children:[`${I(i.live[a])} in ${M(u.length)}\
 values`,Math.abs(l-i.live[a])>.5&&f("span",{class:"soft",children:` (${I(l)} listed below)`})]}),f("dt",{children:"Peak"}),f("dd",{children:[`${I(o)} at `,f("b\
utton",{class:"link",onClick:()=>r(s),children:`step ${M(s+1)}`})]}),f("dt",{children:"Before"}),f("dd",{children:`${I(i.before)} of parameters, buffers and inp\
uts, held by the caller`})]}),f(ut,{columns:c,rows:u,sort:[1,-1],empty:"Nothing is held at this step."},a),f("h3",{children:"Held by the caller throughout"}),f(
ut,{columns:c.slice(0,3),rows:i.held,sort:[1,-1],empty:"Nothing."})]})}var Qn="http://www.w3.org/1999/xhtml",Ti={svg:"http://www.w3.org/2000/svg",xhtml:Qn,xlink:"http://www.w3.org/1999/xlink",xml:"http://www.w3.org/XML/1998/namespa\
ce",xmlns:"http://www.w3.org/2000/xmlns/"};function ye(t){var e=t+="",n=e.indexOf(":");return n>=0&&(e=t.slice(0,n))!=="xmlns"&&(t=t.slice(n+1)),Ti.hasOwnProperty(
e)?{space:Ti[e],local:t}:t}function pa(t){return function(){var e=this.ownerDocument,n=this.namespaceURI;return n===Qn&&e.documentElement.namespaceURI===Qn?e.createElement(
t):e.createElementNS(n,t)}}function ma(t){return function(){return this.ownerDocument.createElementNS(t.space,t.local)}}function Ii(t){var e=ye(t);return(e.local?
ma:pa)(e)}function ga(){}function Qe(t){return t==null?ga:function(){return this.querySelector(t)}}function ya(t){typeof t!="function"&&(t=Qe(t));for(var e=this.
_groups,n=e.length,r=new Array(n),i=0;i<n;++i)for(var s=e[i],o=s.length,a=r[i]=new Array(o),u,l,c=0;c<o;++c)(u=s[c])&&(l=t.call(u,u.__data__,c,s))&&("__data__"in
u&&(l.__data__=u.__data__),a[c]=l);return new j(r,this._parents)}function ba(t){return t==null?[]:Array.isArray(t)?t:Array.from(t)}function va(){return[]}function tr(t){
return t==null?va:function(){return this.querySelectorAll(t)}}function wa(t){return function(){return ba(t.apply(this,arguments))}}function _a(t){typeof t=="fun\
ction"?t=wa(t):t=tr(t);for(var e=this._groups,n=e.length,r=[],i=[],s=0;s<n;++s)for(var o=e[s],a=o.length,u,l=0;l<a;++l)(u=o[l])&&(r.push(t.call(u,u.__data__,l,o)),
i.push(u));return new j(r,i)}function er(t){return function(){return this.matches(t)}}function Ui(t){return function(e){return e.matches(t)}}var xa=Array.prototype.
find;function ka(t){return function(){return xa.call(this.children,t)}}function $a(){return this.firstElementChild}function Ma(t){return this.select(t==null?$a:
ka(typeof t=="function"?t:Ui(t)))}var Sa=Array.prototype.filter;function Oa(){return Array.from(this.children)}function Ea(t){return function(){return Sa.call(this.
children,t)}}function Na(t){return this.selectAll(t==null?Oa:Ea(typeof t=="function"?t:Ui(t)))}function Ca(t){typeof t!="function"&&(t=er(t));for(var e=this._groups,
n=e.length,r=new Array(n),i=0;i<n;++i)for(var s=e[i],o=s.length,a=r[i]=[],u,l=0;l<o;++l)(u=s[l])&&t.call(u,u.__data__,l,s)&&a.push(u);return new j(r,this._parents)}
function Li(t){return new Array(t.length)}function Pa(){return new j(this._enter||this._groups.map(Li),this._parents)}function je(t,e){this.ownerDocument=t.ownerDocument,
this.namespaceURI=t.namespaceURI,this._next=null,this._parent=t,this.__data__=e}je.prototype={constructor:je,appendChild:function(t){return this._parent.insertBefore(
t,this._next)},insertBefore:function(t,e){return this._parent.insertBefore(t,e)},querySelector:function(t){return this._parent.querySelector(t)},querySelectorAll:function(t){
return this._parent.querySelectorAll(t)}};function Aa(t){return function(){return t}}function Ta(t,e,n,r,i,s){for(var o=0,a,u=e.length,l=s.length;o<l;++o)(a=e[o])?
(a.__data__=s[o],r[o]=a):n[o]=new je(t,s[o]);for(;o<u;++o)(a=e[o])&&(i[o]=a)}function Ia(t,e,n,r,i,s,o){var a,u,l=new Map,c=e.length,h=s.length,p=new Array(c),d;
for(a=0;a<c;++a)(u=e[a])&&(p[a]=d=o.call(u,u.__data__,a,e)+"",l.has(d)?i[a]=u:l.set(d,u));for(a=0;a<h;++a)d=o.call(t,s[a],a,s)+"",(u=l.get(d))?(r[a]=u,u.__data__=
s[a],l.delete(d)):n[a]=new je(t,s[a]);for(a=0;a<c;++a)(u=e[a])&&l.get(p[a])===u&&(i[a]=u)}function Ua(t){return t.__data__}function La(t,e){if(!arguments.length)
return Array.from(this,Ua);var n=e?Ia:Ta,r=this._parents,i=this._groups;typeof t!="function"&&(t=Aa(t));for(var s=i.length,o=new Array(s),a=new Array(s),u=new Array(
s),l=0;l<s;++l){var c=r[l],h=i[l],p=h.length,d=Da(t.call(c,c&&c.__data__,l,r)),m=d.length,y=a[l]=new Array(m),w=o[l]=new Array(m),b=u[l]=new Array(p);n(c,h,y,w,
b,d,e);for(var _=0,O=0,$,T;_<m;++_)if($=y[_]){for(_>=O&&(O=_+1);!(T=w[O])&&++O<m;);$._next=T||null}}return o=new j(o,r),o._enter=a,o._exit=u,o}function Da(t){return typeof t==
"object"&&"length"in t?t:Array.from(t)}function Ba(){return new j(this._exit||this._groups.map(Li),this._parents)}function Fa(t,e,n){var r=this.enter(),i=this,s=this.
exit();return typeof t=="function"?(r=t(r),r&&(r=r.selection())):r=r.append(t+""),e!=null&&(i=e(i),i&&(i=i.selection())),n==null?s.remove():n(s),r&&i?r.merge(i).
order():i}function za(t){for(var e=t.selection?t.selection():t,n=this._groups,r=e._groups,i=n.length,s=r.length,o=Math.min(i,s),a=new Array(i),u=0;u<o;++u)for(var l=n[u],
c=r[u],h=l.length,p=a[u]=new Array(h),d,m=0;m<h;++m)(d=l[m]||c[m])&&(p[m]=d);for(;u<i;++u)a[u]=n[u];return new j(a,this._parents)}function Va(){for(var t=this._groups,
e=-1,n=t.length;++e<n;)for(var r=t[e],i=r.length-1,s=r[i],o;--i>=0;)(o=r[i])&&(s&&o.compareDocumentPosition(s)^4&&s.parentNode.insertBefore(o,s),s=o);return this}
function Ra(t){t||(t=Ga);function e(h,p){return h&&p?t(h.__data__,p.__data__):!h-!p}for(var n=this._groups,r=n.length,i=new Array(r),s=0;s<r;++s){for(var o=n[s],
a=o.length,u=i[s]=new Array(a),l,c=0;c<a;++c)(l=o[c])&&(u[c]=l);u.sort(e)}return new j(i,this._parents).order()}function Ga(t,e){return t<e?-1:t>e?1:t>=e?0:NaN}
function Ha(){var t=arguments[0];return arguments[0]=this,t.apply(null,arguments),this}function Wa(){return Array.from(this)}function qa(){for(var t=this._groups,
e=0,n=t.length;e<n;++e)for(var r=t[e],i=0,s=r.length;i<s;++i){var o=r[i];if(o)return o}return null}function Ka(){let t=0;for(let e of this)++t;return t}function Xa(){
return!this.node()}function Ya(t){for(var e=this._groups,n=0,r=e.length;n<r;++n)for(var i=e[n],s=0,o=i.length,a;s<o;++s)(a=i[s])&&t.call(a,a.__data__,s,i);return this}
function Za(t){return function(){this.removeAttribute(t)}}function ja(t){return function(){this.removeAttributeNS(t.space,t.local)}}function Qa(t,e){return function(){
this.setAttribute(t,e)}}function Ja(t,e){return function(){this.setAttributeNS(t.space,t.local,e)}}function tu(t,e){return function(){var n=e.apply(this,arguments);
n==null?this.removeAttribute(t):this.setAttribute(t,n)}}function eu(t,e){return function(){var n=e.apply(this,arguments);n==null?this.removeAttributeNS(t.space,
t.local):this.setAttributeNS(t.space,t.local,n)}}function nu(t,e){var n=ye(t);if(arguments.length<2){var r=this.node();return n.local?r.getAttributeNS(n.space,n.
local):r.getAttribute(n)}return this.each((e==null?n.local?ja:Za:typeof e=="function"?n.local?eu:tu:n.local?Ja:Qa)(n,e))}function Di(t){return t.ownerDocument&&
t.ownerDocument.defaultView||t.document&&t||t.defaultView}function ru(t){return function(){this.style.removeProperty(t)}}function iu(t,e,n){return function(){this.
style.setProperty(t,e,n)}}function su(t,e,n){return function(){var r=e.apply(this,arguments);r==null?this.style.removeProperty(t):this.style.setProperty(t,r,n)}}
function ou(t,e,n){return arguments.length>1?this.each((e==null?ru:typeof e=="function"?su:iu)(t,e,n??"")):qt(this.node(),t)}function qt(t,e){return t.style.getPropertyValue(
e)||Di(t).getComputedStyle(t,null).getPropertyValue(e)}function au(t){return function(){delete this[t]}}function uu(t,e){return function(){this[t]=e}}function lu(t,e){
return function(){var n=e.apply(this,arguments);n==null?delete this[t]:this[t]=n}}function cu(t,e){return arguments.length>1?this.each((e==null?au:typeof e=="fu\
nction"?lu:uu)(t,e)):this.node()[t]}function Bi(t){return t.trim().split(/^|\s+/)}function nr(t){return t.classList||new Fi(t)}function Fi(t){this._node=t,this.
_names=Bi(t.getAttribute("class")||"")}Fi.prototype={add:function(t){var e=this._names.indexOf(t);e<0&&(this._names.push(t),this._node.setAttribute("class",this.
_names.join(" ")))},remove:function(t){var e=this._names.indexOf(t);e>=0&&(this._names.splice(e,1),this._node.setAttribute("class",this._names.join(" ")))},contains:function(t){
return this._names.indexOf(t)>=0}};function zi(t,e){for(var n=nr(t),r=-1,i=e.length;++r<i;)n.add(e[r])}function Vi(t,e){for(var n=nr(t),r=-1,i=e.length;++r<i;)n.
remove(e[r])}function fu(t){return function(){zi(this,t)}}function hu(t){return function(){Vi(this,t)}}function du(t,e){return function(){(e.apply(this,arguments)?
zi:Vi)(this,t)}}function pu(t,e){var n=Bi(t+"");if(arguments.length<2){for(var r=nr(this.node()),i=-1,s=n.length;++i<s;)if(!r.contains(n[i]))return!1;return!0}return this.
each((typeof e=="function"?du:e?fu:hu)(n,e))}function mu(){this.textContent=""}function gu(t){return function(){this.textContent=t}}function yu(t){return function(){
var e=t.apply(this,arguments);this.textContent=e??""}}function bu(t){return arguments.length?this.each(t==null?mu:(typeof t=="function"?yu:gu)(t)):this.node().textContent}
function vu(){this.innerHTML=""}function wu(t){return function(){this.innerHTML=t}}function _u(t){return function(){var e=t.apply(this,arguments);this.innerHTML=
e??""}}function xu(t){return arguments.length?this.each(t==null?vu:(typeof t=="function"?_u:wu)(t)):this.node().innerHTML}function ku(){this.nextSibling&&this.parentNode.
appendChild(this)}function $u(){return this.each(ku)}function Mu(){this.previousSibling&&this.parentNode.insertBefore(this,this.parentNode.firstChild)}function Su(){
return this.each(Mu)}function Ou(t){var e=typeof t=="function"?t:Ii(t);return this.select(function(){return this.appendChild(e.apply(this,arguments))})}function Eu(){
return null}function Nu(t,e){var n=typeof t=="function"?t:Ii(t),r=e==null?Eu:typeof e=="function"?e:Qe(e);return this.select(function(){return this.insertBefore(
n.apply(this,arguments),r.apply(this,arguments)||null)})}function Cu(){var t=this.parentNode;t&&t.removeChild(this)}function Pu(){return this.each(Cu)}function Au(){
var t=this.cloneNode(!1),e=this.parentNode;return e?e.insertBefore(t,this.nextSibling):t}function Tu(){var t=this.cloneNode(!0),e=this.parentNode;return e?e.insertBefore(
t,this.nextSibling):t}function Iu(t){return this.select(t?Tu:Au)}function Uu(t){return arguments.length?this.property("__data__",t):this.node().__data__}function Lu(t){
return function(e){t.call(this,e,this.__data__)}}function Du(t){return t.trim().split(/^|\s+/).map(function(e){var n="",r=e.indexOf(".");return r>=0&&(n=e.slice(
r+1),e=e.slice(0,r)),{type:e,name:n}})}function Bu(t){return function(){var e=this.__on;if(e){for(var n=0,r=-1,i=e.length,s;n<i;++n)s=e[n],(!t.type||s.type===t.
type)&&s.name===t.name?this.removeEventListener(s.type,s.listener,s.options):e[++r]=s;++r?e.length=r:delete this.__on}}}function Fu(t,e,n){return function(){var r=this.
__on,i,s=Lu(e);if(r){for(var o=0,a=r.length;o<a;++o)if((i=r[o]).type===t.type&&i.name===t.name){this.removeEventListener(i.type,i.listener,i.options),this.addEventListener(
i.type,i.listener=s,i.options=n),i.value=e;return}}this.addEventListener(t.type,s,n),i={type:t.type,name:t.name,value:e,listener:s,options:n},r?r.push(i):this.__on=
[i]}}function zu(t,e,n){var r=Du(t+""),i,s=r.length,o;if(arguments.length<2){var a=this.node().__on;if(a){for(var u=0,l=a.length,c;u<l;++u)for(i=0,c=a[u];i<s;++i)
if((o=r[i]).type===c.type&&o.name===c.name)return c.value}return}for(a=e?Fu:Bu,i=0;i<s;++i)this.each(a(r[i],e,n));return this}function Ri(t,e,n){var r=Di(t),i=r.
CustomEvent;typeof i=="function"?i=new i(e,n):(i=r.document.createEvent("Event"),n?(i.initEvent(e,n.bubbles,n.cancelable),i.detail=n.detail):i.initEvent(e,!1,!1)),
t.dispatchEvent(i)}function Vu(t,e){return function(){return Ri(this,t,e)}}function Ru(t,e){return function(){return Ri(this,t,e.apply(this,arguments))}}function Gu(t,e){
return this.each((typeof e=="function"?Ru:Vu)(t,e))}function*Hu(){for(var t=this._groups,e=0,n=t.length;e<n;++e)for(var r=t[e],i=0,s=r.length,o;i<s;++i)(o=r[i])&&
(yield o)}var Gi=[null];function j(t,e){this._groups=t,this._parents=e}function Kt(){return new j([[document.documentElement]],Gi)}function Wu(){return this}j.prototype=
Kt.prototype={constructor:j,select:ya,selectAll:_a,selectChild:Ma,selectChildren:Na,filter:Ca,data:La,enter:Pa,exit:Ba,join:Fa,merge:za,selection:Wu,order:Va,sort:Ra,
call:Ha,nodes:Wa,node:qa,size:Ka,empty:Xa,each:Ya,attr:nu,style:ou,property:cu,classed:pu,text:bu,html:xu,raise:$u,lower:Su,append:Ou,insert:Nu,remove:Pu,clone:Iu,
datum:Uu,on:zu,dispatch:Gu,[Symbol.iterator]:Hu};function q(t){return typeof t=="string"?new j([[document.querySelector(t)]],[document.documentElement]):new j([
[t]],Gi)}var qu=0;function Ku(){return new Jn}function Jn(){this._="@"+(++qu).toString(36)}Jn.prototype=Ku.prototype={constructor:Jn,get:function(t){for(var e=this._;!(e in
t);)if(!(t=t.parentNode))return;return t[e]},set:function(t,e){return t[this._]=e},remove:function(t){return this._ in t&&delete t[this._]},toString:function(){
return this._}};function Xu(t){let e;for(;e=t.sourceEvent;)t=e;return t}function Ot(t,e){if(t=Xu(t),e===void 0&&(e=t.currentTarget),e){var n=e.ownerSVGElement||
e;if(n.createSVGPoint){var r=n.createSVGPoint();return r.x=t.clientX,r.y=t.clientY,r=r.matrixTransform(e.getScreenCTM().inverse()),[r.x,r.y]}if(e.getBoundingClientRect){
var i=e.getBoundingClientRect();return[t.clientX-i.left-e.clientLeft,t.clientY-i.top-e.clientTop]}}return[t.pageX,t.pageY]}var Yu={value:()=>{}};function be(){for(var t=0,e=arguments.length,n={},r;t<e;++t){if(!(r=arguments[t]+"")||r in n||/[\s.]/.test(r))throw new Error("illegal typ\
e: "+r);n[r]=[]}return new Je(n)}function Je(t){this._=t}function Zu(t,e){return t.trim().split(/^|\s+/).map(function(n){var r="",i=n.indexOf(".");if(i>=0&&(r=n.
slice(i+1),n=n.slice(0,i)),n&&!e.hasOwnProperty(n))throw new Error("unknown type: "+n);return{type:n,name:r}})}Je.prototype=be.prototype={constructor:Je,on:function(t,e){
var n=this._,r=Zu(t+"",n),i,s=-1,o=r.length;if(arguments.length<2){for(;++s<o;)if((i=(t=r[s]).type)&&(i=ju(n[i],t.name)))return i;return}if(e!=null&&typeof e!="\
function")throw new Error("invalid callback: "+e);for(;++s<o;)if(i=(t=r[s]).type)n[i]=Hi(n[i],t.name,e);else if(e==null)for(i in n)n[i]=Hi(n[i],t.name,null);return this},
copy:function(){var t={},e=this._;for(var n in e)t[n]=e[n].slice();return new Je(t)},call:function(t,e){if((i=arguments.length-2)>0)for(var n=new Array(i),r=0,i,
s;r<i;++r)n[r]=arguments[r+2];if(!this._.hasOwnProperty(t))throw new Error("unknown type: "+t);for(s=this._[t],r=0,i=s.length;r<i;++r)s[r].value.apply(e,n)},apply:function(t,e,n){
if(!this._.hasOwnProperty(t))throw new Error("unknown type: "+t);for(var r=this._[t],i=0,s=r.length;i<s;++i)r[i].value.apply(e,n)}};function ju(t,e){for(var n=0,
r=t.length,i;n<r;++n)if((i=t[n]).name===e)return i.value}function Hi(t,e,n){for(var r=0,i=t.length;r<i;++r)if(t[r].name===e){t[r]=Yu,t=t.slice(0,r).concat(t.slice(
r+1));break}return n!=null&&t.push({name:e,value:n}),t}var rr={capture:!0,passive:!1};function ir(t){t.preventDefault(),t.stopImmediatePropagation()}function Wi(t){var e=t.document.documentElement,n=q(t).on("dragstart.drag",ir,rr);"onselectstart"in
e?n.on("selectstart.drag",ir,rr):(e.__noselect=e.style.MozUserSelect,e.style.MozUserSelect="none")}function qi(t,e){var n=t.document.documentElement,r=q(t).on("\
dragstart.drag",null);e&&(r.on("click.drag",ir,rr),setTimeout(function(){r.on("click.drag",null)},0)),"onselectstart"in n?r.on("selectstart.drag",null):(n.style.
MozUserSelect=n.__noselect,delete n.__noselect)}function Qu(t,{sourceEvent:e,subject:n,target:r,identifier:i,active:s,x:o,y:a,dx:u,dy:l,dispatch:c}){Object.defineProperties(this,{type:{value:t,enumerable:!0,configurable:!0},
sourceEvent:{value:e,enumerable:!0,configurable:!0},subject:{value:n,enumerable:!0,configurable:!0},target:{value:r,enumerable:!0,configurable:!0},identifier:{value:i,
enumerable:!0,configurable:!0},active:{value:s,enumerable:!0,configurable:!0},x:{value:o,enumerable:!0,configurable:!0},y:{value:a,enumerable:!0,configurable:!0},
dx:{value:u,enumerable:!0,configurable:!0},dy:{value:l,enumerable:!0,configurable:!0},_:{value:c}})}Qu.prototype.on=function(){var t=this._.on.apply(this._,arguments);
return t===this._?this:t};function ce(t,e,n){t.prototype=e.prototype=n,n.constructor=t}function _e(t,e){var n=Object.create(t.prototype);for(var r in e)n[r]=e[r];return n}function Bt(){}
var jt=.7,le=1/jt,ae="\\s*([+-]?\\d+)\\s*",ve="\\s*([+-]?(?:\\d*\\.)?\\d+(?:[eE][+-]?\\d+)?)\\s*",yt="\\s*([+-]?(?:\\d*\\.)?\\d+(?:[eE][+-]?\\d+)?)%\\s*",Ju=/^#([0-9a-f]{3,8})$/,
tl=new RegExp(`^rgb\\(${ae},${ae},${ae}\\)$`),el=new RegExp(`^rgb\\(${yt},${yt},${yt}\\)$`),nl=new RegExp(`^rgba\\(${ae},${ae},${ae},${ve}\\)$`),rl=new RegExp(`\
^rgba\\(${yt},${yt},${yt},${ve}\\)$`),il=new RegExp(`^hsl\\(${ve},${yt},${yt}\\)$`),sl=new RegExp(`^hsla\\(${ve},${yt},${yt},${ve}\\)$`),Ki={aliceblue:15792383,
antiquewhite:16444375,aqua:65535,aquamarine:8388564,azure:15794175,beige:16119260,bisque:16770244,black:0,blanchedalmond:16772045,blue:255,blueviolet:9055202,brown:10824234,
burlywood:14596231,cadetblue:6266528,chartreuse:8388352,chocolate:13789470,coral:16744272,cornflowerblue:6591981,cornsilk:16775388,crimson:14423100,cyan:65535,darkblue:139,
darkcyan:35723,darkgoldenrod:12092939,darkgray:11119017,darkgreen:25600,darkgrey:11119017,darkkhaki:12433259,darkmagenta:9109643,darkolivegreen:5597999,darkorange:16747520,
darkorchid:10040012,darkred:9109504,darksalmon:15308410,darkseagreen:9419919,darkslateblue:4734347,darkslategray:3100495,darkslategrey:3100495,darkturquoise:52945,
darkviolet:9699539,deeppink:16716947,deepskyblue:49151,dimgray:6908265,dimgrey:6908265,dodgerblue:2003199,firebrick:11674146,floralwhite:16775920,forestgreen:2263842,
fuchsia:16711935,gainsboro:14474460,ghostwhite:16316671,gold:16766720,goldenrod:14329120,gray:8421504,green:32768,greenyellow:11403055,grey:8421504,honeydew:15794160,
hotpink:16738740,indianred:13458524,indigo:4915330,ivory:16777200,khaki:15787660,lavender:15132410,lavenderblush:16773365,lawngreen:8190976,lemonchiffon:16775885,
lightblue:11393254,lightcoral:15761536,lightcyan:14745599,lightgoldenrodyellow:16448210,lightgray:13882323,lightgreen:9498256,lightgrey:13882323,lightpink:16758465,
lightsalmon:16752762,lightseagreen:2142890,lightskyblue:8900346,lightslategray:7833753,lightslategrey:7833753,lightsteelblue:11584734,lightyellow:16777184,lime:65280,
limegreen:3329330,linen:16445670,magenta:16711935,maroon:8388608,mediumaquamarine:6737322,mediumblue:205,mediumorchid:12211667,mediumpurple:9662683,mediumseagreen:3978097,
mediumslateblue:8087790,mediumspringgreen:64154,mediumturquoise:4772300,mediumvioletred:13047173,midnightblue:1644912,mintcream:16121850,mistyrose:16770273,moccasin:16770229,
navajowhite:16768685,navy:128,oldlace:16643558,olive:8421376,olivedrab:7048739,orange:16753920,orangered:16729344,orchid:14315734,palegoldenrod:15657130,palegreen:10025880,
paleturquoise:11529966,palevioletred:14381203,papayawhip:16773077,peachpuff:16767673,peru:13468991,pink:16761035,plum:14524637,powderblue:11591910,purple:8388736,
rebeccapurple:6697881,red:16711680,rosybrown:12357519,royalblue:4286945,saddlebrown:9127187,salmon:16416882,sandybrown:16032864,seagreen:3050327,seashell:16774638,
sienna:10506797,silver:12632256,skyblue:8900331,slateblue:6970061,slategray:7372944,slategrey:7372944,snow:16775930,springgreen:65407,steelblue:4620980,tan:13808780,
teal:32896,thistle:14204888,tomato:16737095,turquoise:4251856,violet:15631086,wheat:16113331,white:16777215,whitesmoke:16119285,yellow:16776960,yellowgreen:10145074};
ce(Bt,Qt,{copy(t){return Object.assign(new this.constructor,this,t)},displayable(){return this.rgb().displayable()},hex:Xi,formatHex:Xi,formatHex8:ol,formatHsl:al,
formatRgb:Yi,toString:Yi});function Xi(){return this.rgb().formatHex()}function ol(){return this.rgb().formatHex8()}function al(){return is(this).formatHsl()}function Yi(){
return this.rgb().formatRgb()}function Qt(t){var e,n;return t=(t+"").trim().toLowerCase(),(e=Ju.exec(t))?(n=e[1].length,e=parseInt(e[1],16),n===6?Zi(e):n===3?new R(
e>>8&15|e>>4&240,e>>4&15|e&240,(e&15)<<4|e&15,1):n===8?tn(e>>24&255,e>>16&255,e>>8&255,(e&255)/255):n===4?tn(e>>12&15|e>>8&240,e>>8&15|e>>4&240,e>>4&15|e&240,((e&
15)<<4|e&15)/255):null):(e=tl.exec(t))?new R(e[1],e[2],e[3],1):(e=el.exec(t))?new R(e[1]*255/100,e[2]*255/100,e[3]*255/100,1):(e=nl.exec(t))?tn(e[1],e[2],e[3],e[4]):
(e=rl.exec(t))?tn(e[1]*255/100,e[2]*255/100,e[3]*255/100,e[4]):(e=il.exec(t))?Ji(e[1],e[2]/100,e[3]/100,1):(e=sl.exec(t))?Ji(e[1],e[2]/100,e[3]/100,e[4]):Ki.hasOwnProperty(
t)?Zi(Ki[t]):t==="transparent"?new R(NaN,NaN,NaN,0):null}function Zi(t){return new R(t>>16&255,t>>8&255,t&255,1)}function tn(t,e,n,r){return r<=0&&(t=e=n=NaN),new R(
t,e,n,r)}function cr(t){return t instanceof Bt||(t=Qt(t)),t?(t=t.rgb(),new R(t.r,t.g,t.b,t.opacity)):new R}function xe(t,e,n,r){return arguments.length===1?cr(t):
new R(t,e,n,r??1)}function R(t,e,n,r){this.r=+t,this.g=+e,this.b=+n,this.opacity=+r}ce(R,xe,_e(Bt,{brighter(t){return t=t==null?le:Math.pow(le,t),new R(this.r*t,
this.g*t,this.b*t,this.opacity)},darker(t){return t=t==null?jt:Math.pow(jt,t),new R(this.r*t,this.g*t,this.b*t,this.opacity)},rgb(){return this},clamp(){return new R(
Yt(this.r),Yt(this.g),Yt(this.b),nn(this.opacity))},displayable(){return-.5<=this.r&&this.r<255.5&&-.5<=this.g&&this.g<255.5&&-.5<=this.b&&this.b<255.5&&0<=this.
opacity&&this.opacity<=1},hex:ji,formatHex:ji,formatHex8:ul,formatRgb:Qi,toString:Qi}));function ji(){return`#${Xt(this.r)}${Xt(this.g)}${Xt(this.b)}`}function ul(){
return`#${Xt(this.r)}${Xt(this.g)}${Xt(this.b)}${Xt((isNaN(this.opacity)?1:this.opacity)*255)}`}function Qi(){let t=nn(this.opacity);return`${t===1?"rgb(":"rgba\
("}${Yt(this.r)}, ${Yt(this.g)}, ${Yt(this.b)}${t===1?")":`, ${t})`}`}function nn(t){return isNaN(t)?1:Math.max(0,Math.min(1,t))}function Yt(t){return Math.max(
0,Math.min(255,Math.round(t)||0))}function Xt(t){return t=Yt(t),(t<16?"0":"")+t.toString(16)}function Ji(t,e,n,r){return r<=0?t=e=n=NaN:n<=0||n>=1?t=e=NaN:e<=0&&
(t=NaN),new ct(t,e,n,r)}function is(t){if(t instanceof ct)return new ct(t.h,t.s,t.l,t.opacity);if(t instanceof Bt||(t=Qt(t)),!t)return new ct;if(t instanceof ct)
return t;t=t.rgb();var e=t.r/255,n=t.g/255,r=t.b/255,i=Math.min(e,n,r),s=Math.max(e,n,r),o=NaN,a=s-i,u=(s+i)/2;return a?(e===s?o=(n-r)/a+(n<r)*6:n===s?o=(r-e)/a+
2:o=(e-n)/a+4,a/=u<.5?s+i:2-s-i,o*=60):a=u>0&&u<1?0:o,new ct(o,a,u,t.opacity)}function sn(t,e,n,r){return arguments.length===1?is(t):new ct(t,e,n,r??1)}function ct(t,e,n,r){
this.h=+t,this.s=+e,this.l=+n,this.opacity=+r}ce(ct,sn,_e(Bt,{brighter(t){return t=t==null?le:Math.pow(le,t),new ct(this.h,this.s,this.l*t,this.opacity)},darker(t){
return t=t==null?jt:Math.pow(jt,t),new ct(this.h,this.s,this.l*t,this.opacity)},rgb(){var t=this.h%360+(this.h<0)*360,e=isNaN(t)||isNaN(this.s)?0:this.s,n=this.
l,r=n+(n<.5?n:1-n)*e,i=2*n-r;return new R(sr(t>=240?t-240:t+120,i,r),sr(t,i,r),sr(t<120?t+240:t-120,i,r),this.opacity)},clamp(){return new ct(ts(this.h),en(this.
s),en(this.l),nn(this.opacity))},displayable(){return(0<=this.s&&this.s<=1||isNaN(this.s))&&0<=this.l&&this.l<=1&&0<=this.opacity&&this.opacity<=1},formatHsl(){
let t=nn(this.opacity);return`${t===1?"hsl(":"hsla("}${ts(this.h)}, ${en(this.s)*100}%, ${en(this.l)*100}%${t===1?")":`, ${t})`}`}}));function ts(t){return t=(t||
0)%360,t<0?t+360:t}function en(t){return Math.max(0,Math.min(1,t||0))}function sr(t,e,n){return(t<60?e+(n-e)*t/60:t<180?n:t<240?e+(n-e)*(240-t)/60:e)*255}var ss=Math.
PI/180,os=180/Math.PI,rn=18,as=.96422,us=1,ls=.82521,cs=4/29,ue=6/29,fs=3*ue*ue,ll=ue*ue*ue;function hs(t){if(t instanceof bt)return new bt(t.l,t.a,t.b,t.opacity);
if(t instanceof Et)return ps(t);t instanceof R||(t=cr(t));var e=lr(t.r),n=lr(t.g),r=lr(t.b),i=or((.2225045*e+.7168786*n+.0606169*r)/us),s,o;return e===n&&n===r?
s=o=i:(s=or((.4360747*e+.3850649*n+.1430804*r)/as),o=or((.0139322*e+.0971045*n+.7141733*r)/ls)),new bt(116*i-16,500*(s-i),200*(i-o),t.opacity)}function ds(t,e,n,r){return arguments.length===1?hs(t):new bt(t,e,n,r??1)}function bt(t,e,n,r){this.l=+t,this.a=+e,this.b=+n,this.opacity=+r}ce(bt,ds,_e(Bt,{brighter(t){
return new bt(this.l+rn*(t??1),this.a,this.b,this.opacity)},darker(t){return new bt(this.l-rn*(t??1),this.a,this.b,this.opacity)},rgb(){var t=(this.l+16)/116,e=isNaN(
this.a)?t:t+this.a/500,n=isNaN(this.b)?t:t-this.b/200;return e=as*ar(e),t=us*ar(t),n=ls*ar(n),new R(ur(3.1338561*e-1.6168667*t-.4906146*n),ur(-.9787684*e+1.9161415*
t+.033454*n),ur(.0719453*e-.2289914*t+1.4052427*n),this.opacity)}}));function or(t){return t>ll?Math.pow(t,1/3):t/fs+cs}function ar(t){return t>ue?t*t*t:fs*(t-cs)}
function ur(t){return 255*(t<=.0031308?12.92*t:1.055*Math.pow(t,1/2.4)-.055)}function lr(t){return(t/=255)<=.04045?t/12.92:Math.pow((t+.055)/1.055,2.4)}function cl(t){
if(t instanceof Et)return new Et(t.h,t.c,t.l,t.opacity);if(t instanceof bt||(t=hs(t)),t.a===0&&t.b===0)return new Et(NaN,0<t.l&&t.l<100?0:NaN,t.l,t.opacity);var e=Math.
atan2(t.b,t.a)*os;return new Et(e<0?e+360:e,Math.sqrt(t.a*t.a+t.b*t.b),t.l,t.opacity)}function on(t,e,n,r){return arguments.length===1?cl(t):new Et(t,e,n,r??1)}function Et(t,e,n,r){this.h=+t,this.c=+e,this.l=+n,this.opacity=+r}function ps(t){if(isNaN(
t.h))return new bt(t.l,0,0,t.opacity);var e=t.h*ss;return new bt(t.l,Math.cos(e)*t.c,Math.sin(e)*t.c,t.opacity)}ce(Et,on,_e(Bt,{brighter(t){return new Et(this.h,
this.c,this.l+rn*(t??1),this.opacity)},darker(t){return new Et(this.h,this.c,this.l-rn*(t??1),this.opacity)},rgb(){return ps(this).rgb()}}));var ms=-.14861,fr=1.78277,
hr=-.29227,an=-.90649,we=1.97294,es=we*an,ns=we*fr,rs=fr*hr-an*ms;function fl(t){if(t instanceof Zt)return new Zt(t.h,t.s,t.l,t.opacity);t instanceof R||(t=cr(t));
var e=t.r/255,n=t.g/255,r=t.b/255,i=(rs*r+es*e-ns*n)/(rs+es-ns),s=r-i,o=(we*(n-i)-hr*s)/an,a=Math.sqrt(o*o+s*s)/(we*i*(1-i)),u=a?Math.atan2(o,s)*os-120:NaN;return new Zt(
u<0?u+360:u,a,i,t.opacity)}function un(t,e,n,r){return arguments.length===1?fl(t):new Zt(t,e,n,r??1)}function Zt(t,e,n,r){this.h=+t,this.s=+e,this.l=+n,this.opacity=
+r}ce(Zt,un,_e(Bt,{brighter(t){return t=t==null?le:Math.pow(le,t),new Zt(this.h,this.s,this.l*t,this.opacity)},darker(t){return t=t==null?jt:Math.pow(jt,t),new Zt(
this.h,this.s,this.l*t,this.opacity)},rgb(){var t=isNaN(this.h)?0:(this.h+120)*ss,e=+this.l,n=isNaN(this.s)?0:this.s*e*(1-e),r=Math.cos(t),i=Math.sin(t);return new R(
255*(e+n*(ms*r+fr*i)),255*(e+n*(hr*r+an*i)),255*(e+n*(we*r)),this.opacity)}}));function bs(t,e,n,r,i){var s=t*t,o=s*t;return((1-3*t+3*s-o)*e+(4-6*s+3*o)*n+(1+3*t+3*s-3*o)*r+o*i)/6}function hl(t){var e=t.length-1;return function(n){var r=n<=
0?n=0:n>=1?(n=1,e-1):Math.floor(n*e),i=t[r],s=t[r+1],o=r>0?t[r-1]:2*i-s,a=r<e-1?t[r+2]:2*s-i;return bs((n-r/e)*e,o,i,s,a)}}function dl(t){var e=t.length;return function(n){
var r=Math.floor(((n%=1)<0?++n:n)*e),i=t[(r+e-1)%e],s=t[r%e],o=t[(r+1)%e],a=t[(r+2)%e];return bs((n-r/e)*e,i,s,o,a)}}var gr=t=>()=>t;function vs(t,e){return function(n){
return t+n*e}}function pl(t,e,n){return t=Math.pow(t,n),e=Math.pow(e,n)-t,n=1/n,function(r){return Math.pow(t+r*e,n)}}function yr(t,e){var n=e-t;return n?vs(t,n>
180||n<-180?n-360*Math.round(n/360):n):gr(isNaN(t)?e:t)}function ml(t){return(t=+t)==1?Y:function(e,n){return n-e?pl(e,n,t):gr(isNaN(e)?n:e)}}function Y(t,e){var n=e-
t;return n?vs(t,n):gr(isNaN(t)?e:t)}var br=(function t(e){var n=ml(e);function r(i,s){var o=n((i=xe(i)).r,(s=xe(s)).r),a=n(i.g,s.g),u=n(i.b,s.b),l=Y(i.opacity,s.
opacity);return function(c){return i.r=o(c),i.g=a(c),i.b=u(c),i.opacity=l(c),i+""}}return r.gamma=t,r})(1);function ws(t){return function(e){var n=e.length,r=new Array(
n),i=new Array(n),s=new Array(n),o,a;for(o=0;o<n;++o)a=xe(e[o]),r[o]=a.r||0,i[o]=a.g||0,s[o]=a.b||0;return r=t(r),i=t(i),s=t(s),a.opacity=1,function(u){return a.
r=r(u),a.g=i(u),a.b=s(u),a+""}}}var dh=ws(hl),ph=ws(dl);function Nt(t,e){return t=+t,e=+e,function(n){return t*(1-n)+e*n}}var pr=/[-+]?(?:\d+\.?\d*|\.?\d+)(?:[eE][-+]?\d+)?/g,dr=new RegExp(pr.source,"g");function gl(t){return function(){return t}}function yl(t){return function(e){return t(
e)+""}}function _s(t,e){var n=pr.lastIndex=dr.lastIndex=0,r,i,s,o=-1,a=[],u=[];for(t=t+"",e=e+"";(r=pr.exec(t))&&(i=dr.exec(e));)(s=i.index)>n&&(s=e.slice(n,s),
a[o]?a[o]+=s:a[++o]=s),(r=r[0])===(i=i[0])?a[o]?a[o]+=i:a[++o]=i:(a[++o]=null,u.push({i:o,x:Nt(r,i)})),n=dr.lastIndex;return n<e.length&&(s=e.slice(n),a[o]?a[o]+=
s:a[++o]=s),a.length<2?u[0]?yl(u[0].x):gl(e):(e=u.length,function(l){for(var c=0,h;c<e;++c)a[(h=u[c]).i]=h.x(l);return a.join("")})}var gs=180/Math.PI,mr={translateX:0,translateY:0,rotate:0,skewX:0,scaleX:1,scaleY:1};function xs(t,e,n,r,i,s){var o,a,u;return(o=Math.sqrt(t*t+e*e))&&(t/=o,e/=o),
(u=t*n+e*r)&&(n-=t*u,r-=e*u),(a=Math.sqrt(n*n+r*r))&&(n/=a,r/=a,u/=a),t*r<e*n&&(t=-t,e=-e,u=-u,o=-o),{translateX:i,translateY:s,rotate:Math.atan2(e,t)*gs,skewX:Math.
atan(u)*gs,scaleX:o,scaleY:a}}var ln;function bl(t){let e=new(typeof DOMMatrix=="function"?DOMMatrix:WebKitCSSMatrix)(t+"");return e.isIdentity?mr:xs(e.a,e.b,e.
c,e.d,e.e,e.f)}function vl(t){return t==null||(ln||(ln=document.createElementNS("http://www.w3.org/2000/svg","g")),ln.setAttribute("transform",t),!(t=ln.transform.
baseVal.consolidate()))?mr:(t=t.matrix,xs(t.a,t.b,t.c,t.d,t.e,t.f))}function ks(t,e,n,r){function i(l){return l.length?l.pop()+" ":""}function s(l,c,h,p,d,m){if(l!==
h||c!==p){var y=d.push("translate(",null,e,null,n);m.push({i:y-4,x:Nt(l,h)},{i:y-2,x:Nt(c,p)})}else(h||p)&&d.push("translate("+h+e+p+n)}function o(l,c,h,p){l!==
c?(l-c>180?c+=360:c-l>180&&(l+=360),p.push({i:h.push(i(h)+"rotate(",null,r)-2,x:Nt(l,c)})):c&&h.push(i(h)+"rotate("+c+r)}function a(l,c,h,p){l!==c?p.push({i:h.push(
i(h)+"skewX(",null,r)-2,x:Nt(l,c)}):c&&h.push(i(h)+"skewX("+c+r)}function u(l,c,h,p,d,m){if(l!==h||c!==p){var y=d.push(i(d)+"scale(",null,",",null,")");m.push({
i:y-4,x:Nt(l,h)},{i:y-2,x:Nt(c,p)})}else(h!==1||p!==1)&&d.push(i(d)+"scale("+h+","+p+")")}return function(l,c){var h=[],p=[];return l=t(l),c=t(c),s(l.translateX,
l.translateY,c.translateX,c.translateY,h,p),o(l.rotate,c.rotate,h,p),a(l.skewX,c.skewX,h,p),u(l.scaleX,l.scaleY,c.scaleX,c.scaleY,h,p),l=c=null,function(d){for(var m=-1,
y=p.length,w;++m<y;)h[(w=p[m]).i]=w.x(d);return h.join("")}}}var $s=ks(bl,"px, ","px)","deg)"),Ms=ks(vl,", ",")",")"),wl=1e-12;function ys(t){return((t=Math.exp(
t))+1/t)/2}function _l(t){return((t=Math.exp(t))-1/t)/2}function xl(t){return((t=Math.exp(2*t))-1)/(t+1)}var Ss=(function t(e,n,r){function i(s,o){var a=s[0],u=s[1],
l=s[2],c=o[0],h=o[1],p=o[2],d=c-a,m=h-u,y=d*d+m*m,w,b;if(y<wl)b=Math.log(p/l)/e,w=function(U){return[a+U*d,u+U*m,l*Math.exp(e*U*b)]};else{var _=Math.sqrt(y),O=(p*
p-l*l+r*y)/(2*l*n*_),$=(p*p-l*l-r*y)/(2*p*n*_),T=Math.log(Math.sqrt(O*O+1)-O),P=Math.log(Math.sqrt($*$+1)-$);b=(P-T)/e,w=function(U){var K=U*b,Q=ys(T),G=l/(n*_)*
(Q*xl(e*K+T)-_l(T));return[a+G*d,u+G*m,l*Q/ys(e*K+T)]}}return w.duration=Math.abs(b)*1e3*e/Math.SQRT2,w}return i.rho=function(s){var o=Math.max(.001,+s),a=o*o,u=a*
a;return t(o,a,u)},i})(Math.SQRT2,2,4);function Os(t){return function(e,n){var r=t((e=sn(e)).h,(n=sn(n)).h),i=Y(e.s,n.s),s=Y(e.l,n.l),o=Y(e.opacity,n.opacity);return function(a){
return e.h=r(a),e.s=i(a),e.l=s(a),e.opacity=o(a),e+""}}}var mh=Os(yr),gh=Os(Y);function Es(t){return function(e,n){var r=t((e=on(e)).h,(n=on(n)).h),i=Y(e.c,n.c),s=Y(e.l,n.l),o=Y(e.opacity,n.opacity);return function(a){return e.h=r(a),e.c=i(
a),e.l=s(a),e.opacity=o(a),e+""}}}var yh=Es(yr),bh=Es(Y);function Ns(t){return(function e(n){n=+n;function r(i,s){var o=t((i=un(i)).h,(s=un(s)).h),a=Y(i.s,s.s),
u=Y(i.l,s.l),l=Y(i.opacity,s.opacity);return function(c){return i.h=o(c),i.s=a(c),i.l=u(Math.pow(c,n)),i.opacity=l(c),i+""}}return r.gamma=e,r})(1)}var vh=Ns(yr),
wh=Ns(Y);var fe=0,$e=0,ke=0,Ps=1e3,cn,Me,fn=0,Jt=0,dn=0,Se=typeof performance=="object"&&performance.now?performance:Date,As=typeof window=="object"&&window.requestAnimationFrame?
window.requestAnimationFrame.bind(window):function(t){setTimeout(t,17)};function pn(){return Jt||(As(kl),Jt=Se.now()+dn)}function kl(){Jt=0}function hn(){this._call=
this._time=this._next=null}hn.prototype=wr.prototype={constructor:hn,restart:function(t,e,n){if(typeof t!="function")throw new TypeError("callback is not a func\
tion");n=(n==null?pn():+n)+(e==null?0:+e),!this._next&&Me!==this&&(Me?Me._next=this:cn=this,Me=this),this._call=t,this._time=n,vr()},stop:function(){this._call&&
(this._call=null,this._time=1/0,vr())}};function wr(t,e,n){var r=new hn;return r.restart(t,e,n),r}function $l(){pn(),++fe;for(var t=cn,e;t;)(e=Jt-t._time)>=0&&t.
_call.call(void 0,e),t=t._next;--fe}function Cs(){Jt=(fn=Se.now())+dn,fe=$e=0;try{$l()}finally{fe=0,Sl(),Jt=0}}function Ml(){var t=Se.now(),e=t-fn;e>Ps&&(dn-=e,
fn=t)}function Sl(){for(var t,e=cn,n,r=1/0;e;)e._call?(r>e._time&&(r=e._time),t=e,e=e._next):(n=e._next,e._next=null,e=t?t._next=n:cn=n);Me=t,vr(r)}function vr(t){
if(!fe){$e&&($e=clearTimeout($e));var e=t-Jt;e>24?(t<1/0&&($e=setTimeout(Cs,Math.ceil(t-Se.now()-dn)+1)),ke&&(ke=clearInterval(ke))):(ke||(fn=Se.now(),ke=setInterval(
Ml,Ps)),fe=1,As(Cs))}}function _r(t,e,n){var r=new hn;return e=e==null?0:+e,r.restart(i=>{r.stop(),t(i+e)},e,n),r}function Is(t){return((t*=2)<=1?t*t*t:(t-=2)*t*t+2)/2}var xr=3,kh=(function t(e){e=+e;function n(r){return Math.pow(r,e)}return n.exponent=t,n})(xr),$h=(function t(e){
e=+e;function n(r){return 1-Math.pow(1-r,e)}return n.exponent=t,n})(xr),Mh=(function t(e){e=+e;function n(r){return((r*=2)<=1?Math.pow(r,e):2-Math.pow(2-r,e))/2}
return n.exponent=t,n})(xr),Ol=Math.PI,Sh=Ol/2;function mn(t){return(Math.pow(2,-10*t)-.0009765625)*1.0009775171065494}var Ts=4/11,Oh=6/11,Eh=8/11,Nh=3/4,Ch=9/11,Ph=10/11,Ah=15/16,Th=21/22,Ih=63/64,Uh=1/Ts/Ts;var kr=1.70158,Lh=(function t(e){e=+e;function n(r){return(r=+r)*r*(e*(r-1)+r)}return n.overshoot=t,n})(kr),Dh=(function t(e){e=+e;function n(r){return--r*r*((r+
1)*e+r)+1}return n.overshoot=t,n})(kr),Bh=(function t(e){e=+e;function n(r){return((r*=2)<1?r*r*((e+1)*r-e):(r-=2)*r*((e+1)*r+e)+2)/2}return n.overshoot=t,n})(kr),
he=2*Math.PI,$r=1,Mr=.3,Fh=(function t(e,n){var r=Math.asin(1/(e=Math.max(1,e)))*(n/=he);function i(s){return e*mn(- --s)*Math.sin((r-s)/n)}return i.amplitude=function(s){
return t(s,n*he)},i.period=function(s){return t(e,s)},i})($r,Mr),zh=(function t(e,n){var r=Math.asin(1/(e=Math.max(1,e)))*(n/=he);function i(s){return 1-e*mn(s=
+s)*Math.sin((s+r)/n)}return i.amplitude=function(s){return t(s,n*he)},i.period=function(s){return t(e,s)},i})($r,Mr),Vh=(function t(e,n){var r=Math.asin(1/(e=Math.
max(1,e)))*(n/=he);function i(s){return((s=s*2-1)<0?e*mn(-s)*Math.sin((r-s)/n):2-e*mn(s)*Math.sin((r+s)/n))/2}return i.amplitude=function(s){return t(s,n*he)},i.
period=function(s){return t(e,s)},i})($r,Mr);var El=be("start","end","cancel","interrupt"),Nl=[],Ds=0,Us=1,Sr=2,gn=3,Ls=4,Or=5,yn=6;function bn(t,e,n,r,i,s){var o=t.__transition;if(!o)t.__transition={};else if(n in
o)return;Cl(t,n,{name:e,index:r,group:i,on:El,tween:Nl,time:s.time,delay:s.delay,duration:s.duration,ease:s.ease,timer:null,state:Ds})}function Er(t,e){var n=ft(
t,e);if(n.state>Ds)throw new Error("too late; already scheduled");return n}function vt(t,e){var n=ft(t,e);if(n.state>gn)throw new Error("too late; already runni\
ng");return n}function ft(t,e){var n=t.__transition;if(!n||!(n=n[e]))throw new Error("transition not found");return n}function Cl(t,e,n){var r=t.__transition,i;
r[e]=n,n.timer=wr(s,0,n.time);function s(l){n.state=Us,n.timer.restart(o,n.delay,n.time),n.delay<=l&&o(l-n.delay)}function o(l){var c,h,p,d;if(n.state!==Us)return u();
for(c in r)if(d=r[c],d.name===n.name){if(d.state===gn)return _r(o);d.state===Ls?(d.state=yn,d.timer.stop(),d.on.call("interrupt",t,t.__data__,d.index,d.group),delete r[c]):
+c<e&&(d.state=yn,d.timer.stop(),d.on.call("cancel",t,t.__data__,d.index,d.group),delete r[c])}if(_r(function(){n.state===gn&&(n.state=Ls,n.timer.restart(a,n.delay,
n.time),a(l))}),n.state=Sr,n.on.call("start",t,t.__data__,n.index,n.group),n.state===Sr){for(n.state=gn,i=new Array(p=n.tween.length),c=0,h=-1;c<p;++c)(d=n.tween[c].
value.call(t,t.__data__,n.index,n.group))&&(i[++h]=d);i.length=h+1}}function a(l){for(var c=l<n.duration?n.ease.call(null,l/n.duration):(n.timer.restart(u),n.state=
Or,1),h=-1,p=i.length;++h<p;)i[h].call(t,c);n.state===Or&&(n.on.call("end",t,t.__data__,n.index,n.group),u())}function u(){n.state=yn,n.timer.stop(),delete r[e];
for(var l in r)return;delete t.__transition}}function Oe(t,e){var n=t.__transition,r,i,s=!0,o;if(n){e=e==null?null:e+"";for(o in n){if((r=n[o]).name!==e){s=!1;continue}
i=r.state>Sr&&r.state<Or,r.state=yn,r.timer.stop(),r.on.call(i?"interrupt":"cancel",t,t.__data__,r.index,r.group),delete n[o]}s&&delete t.__transition}}function Pl(t){
return this.each(function(){Oe(this,t)})}function Al(t,e){var n,r;return function(){var i=vt(this,t),s=i.tween;if(s!==n){r=n=s;for(var o=0,a=r.length;o<a;++o)if(r[o].
name===e){r=r.slice(),r.splice(o,1);break}}i.tween=r}}function Tl(t,e,n){var r,i;if(typeof n!="function")throw new Error;return function(){var s=vt(this,t),o=s.
tween;if(o!==r){i=(r=o).slice();for(var a={name:e,value:n},u=0,l=i.length;u<l;++u)if(i[u].name===e){i[u]=a;break}u===l&&i.push(a)}s.tween=i}}function Il(t,e){var n=this.
_id;if(t+="",arguments.length<2){for(var r=ft(this.node(),n).tween,i=0,s=r.length,o;i<s;++i)if((o=r[i]).name===t)return o.value;return null}return this.each((e==
null?Al:Tl)(n,t,e))}function Nr(t,e,n){var r=t._id;return t.each(function(){var i=vt(this,r);(i.value||(i.value={}))[e]=n.apply(this,arguments)}),function(i){return ft(
i,r).value[e]}}function Bs(t,e){var n;return(typeof e=="number"?Nt:e instanceof Qt?br:(n=Qt(e))?(e=n,br):_s)(t,e)}function Ul(t){return function(){this.removeAttribute(
t)}}function Ll(t){return function(){this.removeAttributeNS(t.space,t.local)}}function Dl(t,e,n){var r,i=n+"",s;return function(){var o=this.getAttribute(t);return o===
i?null:o===r?s:s=e(r=o,n)}}function Bl(t,e,n){var r,i=n+"",s;return function(){var o=this.getAttributeNS(t.space,t.local);return o===i?null:o===r?s:s=e(r=o,n)}}
function Fl(t,e,n){var r,i,s;return function(){var o,a=n(this),u;return a==null?void this.removeAttribute(t):(o=this.getAttribute(t),u=a+"",o===u?null:o===r&&u===
i?s:(i=u,s=e(r=o,a)))}}function zl(t,e,n){var r,i,s;return function(){var o,a=n(this),u;return a==null?void this.removeAttributeNS(t.space,t.local):(o=this.getAttributeNS(
t.space,t.local),u=a+"",o===u?null:o===r&&u===i?s:(i=u,s=e(r=o,a)))}}function Vl(t,e){var n=ye(t),r=n==="transform"?Ms:Bs;return this.attrTween(t,typeof e=="fun\
ction"?(n.local?zl:Fl)(n,r,Nr(this,"attr."+t,e)):e==null?(n.local?Ll:Ul)(n):(n.local?Bl:Dl)(n,r,e))}function Rl(t,e){return function(n){this.setAttribute(t,e.call(
this,n))}}function Gl(t,e){return function(n){this.setAttributeNS(t.space,t.local,e.call(this,n))}}function Hl(t,e){var n,r;function i(){var s=e.apply(this,arguments);
return s!==r&&(n=(r=s)&&Gl(t,s)),n}return i._value=e,i}function Wl(t,e){var n,r;function i(){var s=e.apply(this,arguments);return s!==r&&(n=(r=s)&&Rl(t,s)),n}return i.
_value=e,i}function ql(t,e){var n="attr."+t;if(arguments.length<2)return(n=this.tween(n))&&n._value;if(e==null)return this.tween(n,null);if(typeof e!="function")
throw new Error;var r=ye(t);return this.tween(n,(r.local?Hl:Wl)(r,e))}function Kl(t,e){return function(){Er(this,t).delay=+e.apply(this,arguments)}}function Xl(t,e){
return e=+e,function(){Er(this,t).delay=e}}function Yl(t){var e=this._id;return arguments.length?this.each((typeof t=="function"?Kl:Xl)(e,t)):ft(this.node(),e).
delay}function Zl(t,e){return function(){vt(this,t).duration=+e.apply(this,arguments)}}function jl(t,e){return e=+e,function(){vt(this,t).duration=e}}function Ql(t){
var e=this._id;return arguments.length?this.each((typeof t=="function"?Zl:jl)(e,t)):ft(this.node(),e).duration}function Jl(t,e){if(typeof e!="function")throw new Error;
return function(){vt(this,t).ease=e}}function tc(t){var e=this._id;return arguments.length?this.each(Jl(e,t)):ft(this.node(),e).ease}function ec(t,e){return function(){
var n=e.apply(this,arguments);if(typeof n!="function")throw new Error;vt(this,t).ease=n}}function nc(t){if(typeof t!="function")throw new Error;return this.each(
ec(this._id,t))}function rc(t){typeof t!="function"&&(t=er(t));for(var e=this._groups,n=e.length,r=new Array(n),i=0;i<n;++i)for(var s=e[i],o=s.length,a=r[i]=[],
u,l=0;l<o;++l)(u=s[l])&&t.call(u,u.__data__,l,s)&&a.push(u);return new Pt(r,this._parents,this._name,this._id)}function ic(t){if(t._id!==this._id)throw new Error;
for(var e=this._groups,n=t._groups,r=e.length,i=n.length,s=Math.min(r,i),o=new Array(r),a=0;a<s;++a)for(var u=e[a],l=n[a],c=u.length,h=o[a]=new Array(c),p,d=0;d<
c;++d)(p=u[d]||l[d])&&(h[d]=p);for(;a<r;++a)o[a]=e[a];return new Pt(o,this._parents,this._name,this._id)}function sc(t){return(t+"").trim().split(/^|\s+/).every(
function(e){var n=e.indexOf(".");return n>=0&&(e=e.slice(0,n)),!e||e==="start"})}function oc(t,e,n){var r,i,s=sc(e)?Er:vt;return function(){var o=s(this,t),a=o.
on;a!==r&&(i=(r=a).copy()).on(e,n),o.on=i}}function ac(t,e){var n=this._id;return arguments.length<2?ft(this.node(),n).on.on(t):this.each(oc(n,t,e))}function uc(t){
return function(){var e=this.parentNode;for(var n in this.__transition)if(+n!==t)return;e&&e.removeChild(this)}}function lc(){return this.on("end.remove",uc(this.
_id))}function cc(t){var e=this._name,n=this._id;typeof t!="function"&&(t=Qe(t));for(var r=this._groups,i=r.length,s=new Array(i),o=0;o<i;++o)for(var a=r[o],u=a.
length,l=s[o]=new Array(u),c,h,p=0;p<u;++p)(c=a[p])&&(h=t.call(c,c.__data__,p,a))&&("__data__"in c&&(h.__data__=c.__data__),l[p]=h,bn(l[p],e,n,p,l,ft(c,n)));return new Pt(
s,this._parents,e,n)}function fc(t){var e=this._name,n=this._id;typeof t!="function"&&(t=tr(t));for(var r=this._groups,i=r.length,s=[],o=[],a=0;a<i;++a)for(var u=r[a],
l=u.length,c,h=0;h<l;++h)if(c=u[h]){for(var p=t.call(c,c.__data__,h,u),d,m=ft(c,n),y=0,w=p.length;y<w;++y)(d=p[y])&&bn(d,e,n,y,p,m);s.push(p),o.push(c)}return new Pt(
s,o,e,n)}var hc=Kt.prototype.constructor;function dc(){return new hc(this._groups,this._parents)}function pc(t,e){var n,r,i;return function(){var s=qt(this,t),o=(this.
style.removeProperty(t),qt(this,t));return s===o?null:s===n&&o===r?i:i=e(n=s,r=o)}}function Fs(t){return function(){this.style.removeProperty(t)}}function mc(t,e,n){
var r,i=n+"",s;return function(){var o=qt(this,t);return o===i?null:o===r?s:s=e(r=o,n)}}function gc(t,e,n){var r,i,s;return function(){var o=qt(this,t),a=n(this),
u=a+"";return a==null&&(u=a=(this.style.removeProperty(t),qt(this,t))),o===u?null:o===r&&u===i?s:(i=u,s=e(r=o,a))}}function yc(t,e){var n,r,i,s="style."+e,o="en\
d."+s,a;return function(){var u=vt(this,t),l=u.on,c=u.value[s]==null?a||(a=Fs(e)):void 0;(l!==n||i!==c)&&(r=(n=l).copy()).on(o,i=c),u.on=r}}function bc(t,e,n){var r=(t+=
"")=="transform"?$s:Bs;return e==null?this.styleTween(t,pc(t,r)).on("end.style."+t,Fs(t)):typeof e=="function"?this.styleTween(t,gc(t,r,Nr(this,"style."+t,e))).
each(yc(this._id,t)):this.styleTween(t,mc(t,r,e),n).on("end.style."+t,null)}function vc(t,e,n){return function(r){this.style.setProperty(t,e.call(this,r),n)}}function wc(t,e,n){
var r,i;function s(){var o=e.apply(this,arguments);return o!==i&&(r=(i=o)&&vc(t,o,n)),r}return s._value=e,s}function _c(t,e,n){var r="style."+(t+="");if(arguments.
length<2)return(r=this.tween(r))&&r._value;if(e==null)return this.tween(r,null);if(typeof e!="function")throw new Error;return this.tween(r,wc(t,e,n??""))}function xc(t){
return function(){this.textContent=t}}function kc(t){return function(){var e=t(this);this.textContent=e??""}}function $c(t){return this.tween("text",typeof t=="\
function"?kc(Nr(this,"text",t)):xc(t==null?"":t+""))}function Mc(t){return function(e){this.textContent=t.call(this,e)}}function Sc(t){var e,n;function r(){var i=t.
apply(this,arguments);return i!==n&&(e=(n=i)&&Mc(i)),e}return r._value=t,r}function Oc(t){var e="text";if(arguments.length<1)return(e=this.tween(e))&&e._value;if(t==
null)return this.tween(e,null);if(typeof t!="function")throw new Error;return this.tween(e,Sc(t))}function Ec(){for(var t=this._name,e=this._id,n=zs(),r=this._groups,
i=r.length,s=0;s<i;++s)for(var o=r[s],a=o.length,u,l=0;l<a;++l)if(u=o[l]){var c=ft(u,e);bn(u,t,n,l,o,{time:c.time+c.delay+c.duration,delay:0,duration:c.duration,
ease:c.ease})}return new Pt(r,this._parents,t,n)}function Nc(){var t,e,n=this,r=n._id,i=n.size();return new Promise(function(s,o){var a={value:o},u={value:function(){
--i===0&&s()}};n.each(function(){var l=vt(this,r),c=l.on;c!==t&&(e=(t=c).copy(),e._.cancel.push(a),e._.interrupt.push(a),e._.end.push(u)),l.on=e}),i===0&&s()})}
var Cc=0;function Pt(t,e,n,r){this._groups=t,this._parents=e,this._name=n,this._id=r}function Pc(t){return Kt().transition(t)}function zs(){return++Cc}var Ct=Kt.
prototype;Pt.prototype=Pc.prototype={constructor:Pt,select:cc,selectAll:fc,selectChild:Ct.selectChild,selectChildren:Ct.selectChildren,filter:rc,merge:ic,selection:dc,
transition:Ec,call:Ct.call,nodes:Ct.nodes,node:Ct.node,size:Ct.size,empty:Ct.empty,each:Ct.each,on:ac,attr:Vl,attrTween:ql,style:bc,styleTween:_c,text:$c,textTween:Oc,
remove:lc,tween:Il,delay:Yl,duration:Ql,ease:tc,easeVarying:nc,end:Nc,[Symbol.iterator]:Ct[Symbol.iterator]};var Ac={time:null,delay:0,duration:250,ease:Is};function Tc(t,e){
for(var n;!(n=t.__transition)||!(n=n[e]);)if(!(t=t.parentNode))throw new Error(`transition ${e} not found`);return n}function Ic(t){var e,n;t instanceof Pt?(e=t.
_id,t=t._name):(e=zs(),(n=Ac).time=pn(),t=t==null?null:t+"");for(var r=this._groups,i=r.length,s=0;s<i;++s)for(var o=r[s],a=o.length,u,l=0;l<a;++l)(u=o[l])&&bn(
u,t,e,l,o,n||Tc(u,e));return new Pt(r,this._parents,t,e)}Kt.prototype.interrupt=Pl;Kt.prototype.transition=Ic;var vn=t=>()=>t;function Uc(t,{sourceEvent:e,target:n,transform:r,dispatch:i}){Object.defineProperties(this,{type:{value:t,enumerable:!0,configurable:!0},sourceEvent:{
value:e,enumerable:!0,configurable:!0},target:{value:n,enumerable:!0,configurable:!0},transform:{value:r,enumerable:!0,configurable:!0},_:{value:i}})}function At(t,e,n){
this.k=t,this.x=e,this.y=n}At.prototype={constructor:At,scale:function(t){return t===1?this:new At(this.k*t,this.x,this.y)},translate:function(t,e){return t===0&
e===0?this:new At(this.k,this.x+this.k*t,this.y+this.k*e)},apply:function(t){return[t[0]*this.k+this.x,t[1]*this.k+this.y]},applyX:function(t){return t*this.k+this.
x},applyY:function(t){return t*this.k+this.y},invert:function(t){return[(t[0]-this.x)/this.k,(t[1]-this.y)/this.k]},invertX:function(t){return(t-this.x)/this.k},
invertY:function(t){return(t-this.y)/this.k},rescaleX:function(t){return t.copy().domain(t.range().map(this.invertX,this).map(t.invert,t))},rescaleY:function(t){
return t.copy().domain(t.range().map(this.invertY,this).map(t.invert,t))},toString:function(){return"translate("+this.x+","+this.y+") scale("+this.k+")"}};var Ft=new At(
1,0,0);Lc.prototype=At.prototype;function Lc(t){for(;!t.__zoom;)if(!(t=t.parentNode))return Ft;return t.__zoom}function Cr(t){t.stopImmediatePropagation()}function Ee(t){
t.preventDefault(),t.stopImmediatePropagation()}function Dc(t){return(!t.ctrlKey||t.type==="wheel")&&!t.button}function Bc(){var t=this;return t instanceof SVGElement?
(t=t.ownerSVGElement||t,t.hasAttribute("viewBox")?(t=t.viewBox.baseVal,[[t.x,t.y],[t.x+t.width,t.y+t.height]]):[[0,0],[t.width.baseVal.value,t.height.baseVal.value]]):
[[0,0],[t.clientWidth,t.clientHeight]]}function Vs(){return this.__zoom||Ft}function Fc(t){return-t.deltaY*(t.deltaMode===1?.05:t.deltaMode?1:.002)*(t.ctrlKey?10:
1)}function zc(){return navigator.maxTouchPoints||"ontouchstart"in this}function Vc(t,e,n){var r=t.invertX(e[0][0])-n[0][0],i=t.invertX(e[1][0])-n[1][0],s=t.invertY(
e[0][1])-n[0][1],o=t.invertY(e[1][1])-n[1][1];return t.translate(i>r?(r+i)/2:Math.min(0,r)||Math.max(0,i),o>s?(s+o)/2:Math.min(0,s)||Math.max(0,o))}function Rs(){
var t=Dc,e=Bc,n=Vc,r=Fc,i=zc,s=[0,1/0],o=[[-1/0,-1/0],[1/0,1/0]],a=250,u=Ss,l=be("start","zoom","end"),c,h,p,d=500,m=150,y=0,w=10;function b(g){g.property("__zo\
om",Vs).on("wheel.zoom",K,{passive:!1}).on("mousedown.zoom",Q).on("dblclick.zoom",G).filter(i).on("touchstart.zoom",wt).on("touchmove.zoom",J).on("touchend.zoom\
 touchcancel.zoom",X).style("-webkit-tap-highlight-color","rgba(0,0,0,0)")}b.transform=function(g,x,v,k){var S=g.selection?g.selection():g;S.property("__zoom",Vs),
g!==S?T(g,x,v,k):S.interrupt().each(function(){P(this,arguments).event(k).start().zoom(null,typeof x=="function"?x.apply(this,arguments):x).end()})},b.scaleBy=function(g,x,v,k){
b.scaleTo(g,function(){var S=this.__zoom.k,N=typeof x=="function"?x.apply(this,arguments):x;return S*N},v,k)},b.scaleTo=function(g,x,v,k){b.transform(g,function(){
var S=e.apply(this,arguments),N=this.__zoom,C=v==null?$(S):typeof v=="function"?v.apply(this,arguments):v,D=N.invert(C),F=typeof x=="function"?x.apply(this,arguments):
x;return n(O(_(N,F),C,D),S,o)},v,k)},b.translateBy=function(g,x,v,k){b.transform(g,function(){return n(this.__zoom.translate(typeof x=="function"?x.apply(this,arguments):
x,typeof v=="function"?v.apply(this,arguments):v),e.apply(this,arguments),o)},null,k)},b.translateTo=function(g,x,v,k,S){b.transform(g,function(){var N=e.apply(
this,arguments),C=this.__zoom,D=k==null?$(N):typeof k=="function"?k.apply(this,arguments):k;return n(Ft.translate(D[0],D[1]).scale(C.k).translate(typeof x=="fun\
ction"?-x.apply(this,arguments):-x,typeof v=="function"?-v.apply(this,arguments):-v),N,o)},k,S)};function _(g,x){return x=Math.max(s[0],Math.min(s[1],x)),x===g.
k?g:new At(x,g.x,g.y)}function O(g,x,v){var k=x[0]-v[0]*g.k,S=x[1]-v[1]*g.k;return k===g.x&&S===g.y?g:new At(g.k,k,S)}function $(g){return[(+g[0][0]+ +g[1][0])/
2,(+g[0][1]+ +g[1][1])/2]}function T(g,x,v,k){g.on("start.zoom",function(){P(this,arguments).event(k).start()}).on("interrupt.zoom end.zoom",function(){P(this,arguments).
event(k).end()}).tween("zoom",function(){var S=this,N=arguments,C=P(S,N).event(k),D=e.apply(S,N),F=v==null?$(D):typeof v=="function"?v.apply(S,N):v,ht=Math.max(
D[1][0]-D[0][0],D[1][1]-D[0][1]),H=S.__zoom,tt=typeof x=="function"?x.apply(S,N):x,_t=u(H.invert(F).concat(ht/H.k),tt.invert(F).concat(ht/tt.k));return function(et){
if(et===1)et=tt;else{var xt=_t(et),xn=ht/xt[2];et=new At(xn,F[0]-xt[0]*xn,F[1]-xt[1]*xn)}C.zoom(null,et)}})}function P(g,x,v){return!v&&g.__zooming||new U(g,x)}
function U(g,x){this.that=g,this.args=x,this.active=0,this.sourceEvent=null,this.extent=e.apply(g,x),this.taps=0}U.prototype={event:function(g){return g&&(this.
sourceEvent=g),this},start:function(){return++this.active===1&&(this.that.__zooming=this,this.emit("start")),this},zoom:function(g,x){return this.mouse&&g!=="mo\
use"&&(this.mouse[1]=x.invert(this.mouse[0])),this.touch0&&g!=="touch"&&(this.touch0[1]=x.invert(this.touch0[0])),this.touch1&&g!=="touch"&&(this.touch1[1]=x.invert(
this.touch1[0])),this.that.__zoom=x,this.emit("zoom"),this},end:function(){return--this.active===0&&(delete this.that.__zooming,this.emit("end")),this},emit:function(g){
var x=q(this.that).datum();l.call(g,this.that,new Uc(g,{sourceEvent:this.sourceEvent,target:b,transform:this.that.__zoom,dispatch:l}),x)}};function K(g,...x){if(!t.
apply(this,arguments))return;var v=P(this,x).event(g),k=this.__zoom,S=Math.max(s[0],Math.min(s[1],k.k*Math.pow(2,r.apply(this,arguments)))),N=Ot(g);if(v.wheel)(v.
mouse[0][0]!==N[0]||v.mouse[0][1]!==N[1])&&(v.mouse[1]=k.invert(v.mouse[0]=N)),clearTimeout(v.wheel);else{if(k.k===S)return;v.mouse=[N,k.invert(N)],Oe(this),v.start()}
Ee(g),v.wheel=setTimeout(C,m),v.zoom("mouse",n(O(_(k,S),v.mouse[0],v.mouse[1]),v.extent,o));function C(){v.wheel=null,v.end()}}function Q(g,...x){if(p||!t.apply(
this,arguments))return;var v=g.currentTarget,k=P(this,x,!0).event(g),S=q(g.view).on("mousemove.zoom",F,!0).on("mouseup.zoom",ht,!0),N=Ot(g,v),C=g.clientX,D=g.clientY;
Wi(g.view),Cr(g),k.mouse=[N,this.__zoom.invert(N)],Oe(this),k.start();function F(H){if(Ee(H),!k.moved){var tt=H.clientX-C,_t=H.clientY-D;k.moved=tt*tt+_t*_t>y}k.
event(H).zoom("mouse",n(O(k.that.__zoom,k.mouse[0]=Ot(H,v),k.mouse[1]),k.extent,o))}function ht(H){S.on("mousemove.zoom mouseup.zoom",null),qi(H.view,k.moved),Ee(
H),k.event(H).end()}}function G(g,...x){if(t.apply(this,arguments)){var v=this.__zoom,k=Ot(g.changedTouches?g.changedTouches[0]:g,this),S=v.invert(k),N=v.k*(g.shiftKey?
.5:2),C=n(O(_(v,N),k,S),e.apply(this,x),o);Ee(g),a>0?q(this).transition().duration(a).call(T,C,k,g):q(this).call(b.transform,C,k,g)}}function wt(g,...x){if(t.apply(
this,arguments)){var v=g.touches,k=v.length,S=P(this,x,g.changedTouches.length===k).event(g),N,C,D,F;for(Cr(g),C=0;C<k;++C)D=v[C],F=Ot(D,this),F=[F,this.__zoom.
invert(F),D.identifier],S.touch0?!S.touch1&&S.touch0[2]!==F[2]&&(S.touch1=F,S.taps=0):(S.touch0=F,N=!0,S.taps=1+!!c);c&&(c=clearTimeout(c)),N&&(S.taps<2&&(h=F[0],
c=setTimeout(function(){c=null},d)),Oe(this),S.start())}}function J(g,...x){if(this.__zooming){var v=P(this,x).event(g),k=g.changedTouches,S=k.length,N,C,D,F;for(Ee(
g),N=0;N<S;++N)C=k[N],D=Ot(C,this),v.touch0&&v.touch0[2]===C.identifier?v.touch0[0]=D:v.touch1&&v.touch1[2]===C.identifier&&(v.touch1[0]=D);if(C=v.that.__zoom,v.
touch1){var ht=v.touch0[0],H=v.touch0[1],tt=v.touch1[0],_t=v.touch1[1],et=(et=tt[0]-ht[0])*et+(et=tt[1]-ht[1])*et,xt=(xt=_t[0]-H[0])*xt+(xt=_t[1]-H[1])*xt;C=_(C,
Math.sqrt(et/xt)),D=[(ht[0]+tt[0])/2,(ht[1]+tt[1])/2],F=[(H[0]+_t[0])/2,(H[1]+_t[1])/2]}else if(v.touch0)D=v.touch0[0],F=v.touch0[1];else return;v.zoom("touch",
n(O(C,D,F),v.extent,o))}}function X(g,...x){if(this.__zooming){var v=P(this,x).event(g),k=g.changedTouches,S=k.length,N,C;for(Cr(g),p&&clearTimeout(p),p=setTimeout(
function(){p=null},d),N=0;N<S;++N)C=k[N],v.touch0&&v.touch0[2]===C.identifier?delete v.touch0:v.touch1&&v.touch1[2]===C.identifier&&delete v.touch1;if(v.touch1&&
!v.touch0&&(v.touch0=v.touch1,delete v.touch1),v.touch0)v.touch0[1]=this.__zoom.invert(v.touch0[0]);else if(v.end(),v.taps===2&&(C=Ot(C,this),Math.hypot(h[0]-C[0],
h[1]-C[1])<w)){var D=q(this).on("dblclick.zoom");D&&D.apply(this,arguments)}}}return b.wheelDelta=function(g){return arguments.length?(r=typeof g=="function"?g:
vn(+g),b):r},b.filter=function(g){return arguments.length?(t=typeof g=="function"?g:vn(!!g),b):t},b.touchable=function(g){return arguments.length?(i=typeof g=="\
function"?g:vn(!!g),b):i},b.extent=function(g){return arguments.length?(e=typeof g=="function"?g:vn([[+g[0][0],+g[0][1]],[+g[1][0],+g[1][1]]]),b):e},b.scaleExtent=
function(g){return arguments.length?(s[0]=+g[0],s[1]=+g[1],b):[s[0],s[1]]},b.translateExtent=function(g){return arguments.length?(o[0][0]=+g[0][0],o[1][0]=+g[1][0],
o[0][1]=+g[0][1],o[1][1]=+g[1][1],b):[[o[0][0],o[0][1]],[o[1][0],o[1][1]]]},b.constrain=function(g){return arguments.length?(n=g,b):n},b.duration=function(g){return arguments.
length?(a=+g,b):a},b.interpolate=function(g){return arguments.length?(u=g,b):u},b.on=function(){var g=l.on.apply(l,arguments);return g===l?b:g},b.clickDistance=
function(g){return arguments.length?(y=(g=+g)*g,b):Math.sqrt(y)},b.tapDistance=function(g){return arguments.length?(w=+g,b):w},b}var Pr=t=>Math.round(Math.log(t)/Math.log(1.25)),wn=class t extends V{state={window:null};svg=nt();world=nt();zooming;transform=Ft;drawn=null;lastFold=null;measured=[
1,1];watcher=new ResizeObserver(()=>this.resized());componentDidMount(){this.props.mounted(this);let e=this.svg.current;this.zooming=Rs().scaleExtent([.015,4]).
filter(n=>n.type==="wheel"?n.ctrlKey||n.metaKey:!n.button).on("zoom",n=>{this.transform=n.transform,this.world.current.setAttribute("transform",n.transform.toString()),
this.lookAround()}),q(e).call(this.zooming).on("dblclick.zoom",null),e.addEventListener("wheel",n=>{if(n.ctrlKey||n.metaKey)return;n.preventDefault();let r=n.deltaMode?
16:1,[i,s]=n.shiftKey?[n.deltaY,0]:[n.deltaX,n.deltaY];this.moveBy(-i*r/this.transform.k,-s*r/this.transform.k)},{passive:!1}),this.watcher.observe(e),this.resized(),
this.fit()}componentWillUnmount(){this.watcher.disconnect()}componentDidUpdate(e){if(e.model!==this.props.model)this.fit();else if(e.scene!==this.props.scene){let n=this.
lastFold&&[e.scene,this.props.scene].map(r=>r.byUnit.get(-this.lastFold.frame-1));n?.[0]&&n[1]&&this.moveBy(n[0].mid-n[1].mid,n[0].y-n[1].y),this.lookAround()}}size(){
return this.measured}resized(){let{clientWidth:e,clientHeight:n}=this.svg.current;this.measured=[Math.max(1,e),Math.max(1,n)],this.lookAround()}moveBy(e,n){(e||
n)&&this.zooming.translateBy(q(this.svg.current),e,n)}scaleBy(e){this.zooming.scaleBy(q(this.svg.current),e)}fit(){let{left:e,right:n,height:r}=this.props.scene,
[i,s]=this.size(),o=34,a=(i-2*o)/(n-e),u=(s-2*o)/r,l=Math.max(Math.min(a,u,1.15),Math.min(a,.85),.02),c=i/2-(e+n)/2*l,h=r*l<s-2*o?(s-r*l)/2:o;this.zooming.transform(
q(this.svg.current),Ft.translate(c,h).scale(l))}fitAll(){let{left:e,right:n,height:r}=this.props.scene,[i,s]=this.size(),o=Math.min((i-40)/(n-e),(s-40)/r,1.15),
[a,u]=[i/2-(e+n)/2*o,s/2-r/2*o];this.zooming.transform(q(this.svg.current),Ft.translate(a,u).scale(o))}show(e){let n=this.props.scene.byUnit.get(e);if(!n)return;
let[r,i]=this.size(),{k:s}=this.transform,[o,a]=this.transform.apply([n.mid,n.y]);if(o>60&&o<r-60&&a>30&&a+Math.min(n.h*s,i/2)<i-20&&s>=.45)return;let l=Math.max(
s,.8),c=n.y+Math.min(n.h,i/l)/2;this.zooming.transform(q(this.svg.current),Ft.translate(r/2-n.mid*l,i/2-c*l).scale(l))}lookAround(){let[e,n]=this.size(),{k:r}=this.
transform,[i,s]=this.transform.invert([0,0]),o=this.state.window,[a,u]=[e/r,n/r];o&&o.grade===Pr(r)&&i>=o.x&&s>=o.y&&i+a<=o.x+o.w&&s+u<=o.y+o.h||this.setState({
window:{x:i-a/2,y:s-u/2,w:2*a,h:2*u,grade:Pr(r)}})}static within(e,n){let r=1.25**n.grade,i=1.2/r,{x:s,y:o,w:a,h:u}=n,l=(p,d,m,y)=>p<s+a&&d<o+u&&p+m>s&&d+y>o,c=e.
boxes.filter(p=>p.h>i&&l(p.x-120,p.y,p.w+240,p.h)),h=new Map;if(r>.06)for(let p of e.lines){let[d,m,y,w]=p.box;if(!l(d-20,m,y+40,w))continue;let b=h.get(p.within);
b?b.push(p):h.set(p.within,[p])}return{boxes:c,lines:h}}visible(){let[e,n]=this.size(),{k:r}=this.transform,[i,s]=this.transform.invert([0,0]),o={x:i,y:s,w:e/r,
h:n/r,grade:Pr(r)},{model:a,opened:u,scene:l,marks:c}=this.props;return{...o,node:f(Xn,{model:a,opened:u,marks:c,...t.within(l,o),detail:We(1.25**o.grade)})}}base(e){
let{model:n,opened:r,scene:i,marks:s}=this.props,o=[n,i,s.matches,e];if(this.drawn?.key.every((u,l)=>u===o[l]))return this.drawn.node;let a=f(Xn,{model:n,opened:r,
marks:s,...t.within(i,e),detail:We(1.25**e.grade)});return this.drawn={key:o,node:a},a}overlay(e,n){let{model:r,opened:i,scene:s,marks:o}=this.props,a=We(1.25**
n.grade),u=[...e.units].map(([c,h])=>[s.byUnit.get(c),h]),l=c=>+(c.side!=="bridge");return f("g",{class:"overlay",children:[[...e.lines].sort((c,h)=>l(c)-l(h)).
map(c=>f(Wn,{line:c,detail:a,bright:!0},c.d)),u.map(([c,h])=>c&&(c.kind==="open"?f("rect",{class:"ring",x:c.x,y:c.y,width:c.w,height:c.h,rx:8},c.unit):f(qn,{model:r,
opened:i,box:c,detail:a,marks:o,role:`is-${h}`},c.unit)))]})}at(e){let n=e.target,r=s=>{let o=n.closest(`[data-${s}]`)?.getAttribute(`data-${s}`);return o==null?
null:Number(o)},i=r("loop");return{unit:r("unit"),fold:r("fold"),turn:i===null?null:[i,r("turn")]}}clicked=e=>{let{unit:n,fold:r,turn:i}=this.at(e),{scene:s}=this.
props;if(e.detail>1)return;if(this.lastFold=null,i)return this.props.onTurn(...i);let o=n!==null&&s.byUnit.get(n)?.kind==="folded"?-n-1:r;if(o===null)return this.
props.onClick(n);this.lastFold={frame:o,when:e.timeStamp},this.props.onFold(o)};doubled=e=>{this.lastFold&&e.timeStamp-this.lastFold.when<700&&this.props.onOpenAll(
this.lastFold.frame)};hold(e){this.lastFold?.frame!==e&&(this.lastFold={frame:e,when:-1/0})}render({scene:e,lit:n,pinned:r,onHover:i}){let s=this.state.window;return f(
"svg",{ref:this.svg,class:`picture${r?" pinned":""}`,tabindex:0,role:"application","aria-label":"forward and backward","data-boxes":e.boxes.length,onClick:this.
clicked,onDblClick:this.doubled,onMouseOver:o=>i(this.at(o).unit),onMouseLeave:()=>i(null),children:[f(qe,{}),f("g",{ref:this.world,children:[f("g",{class:"base",
children:s&&this.base(s)}),s&&n&&this.overlay(n,s)]})]})}};function Gs(t,e){let n=new Map,{product:r,other:i,read:s,written:o}=t.data.nodes;for(let a=0;a<t.count;a++){let u=e(a),l=t.isForward(a)?0:1,c=n.get(u)??{name:u,
steps:[0,0],flops:[0,0],bytes:[0,0]};n.set(u,c),c.steps[l]++,c.flops[l]+=r[a]+i[a],c.bytes[l]+=s[a]+o[a]}return[...n.values()]}var Hs=new WeakMap;function qs({model:t,
search:e}){let n=Hs.get(t)??{kinds:Gs(t,i=>t.kinds[i]),operators:Gs(t,i=>t.shorts[i])};Hs.set(t,n);let r=Rc(n.kinds);return f("div",{class:"panel",children:[f("\
h2",{children:"Operators"}),f("p",{class:"soft",children:`Forward ${dt(r.flops[0])}, ${I(r.bytes[0])} read and written. Backward ${dt(r.flops[1])}, ${I(r.bytes[1])}\
.`}),f(Ws,{title:"kind",prefix:"kind:",rows:n.kinds,search:e}),f(Ws,{title:"operator",prefix:"op:",rows:n.operators,search:e})]})}function Rc(t){let e=n=>[0,1].
map(r=>t.reduce((i,s)=>i+s[n][r],0));return{name:"",steps:e("steps"),flops:e("flops"),bytes:e("bytes")}}function Ws({title:t,prefix:e,rows:n,search:r}){let i=a=>Math.
max(1,...n.flatMap(u=>u[a])),s=(a,u)=>{let l=i(a);return c=>f("span",{class:"pair",children:[f("span",{children:[f(Ge,{share:c[a][0]/l,side:"forward"}),u(c[a][0])]}),
f("span",{children:[f(Ge,{share:c[a][1]/l,side:"backward"}),u(c[a][1])]})]})},o=[{name:t,value:a=>a.name,cell:a=>f("button",{class:"link",onClick:()=>r(`${e}${a.
name}`),children:f("bdi",{children:a.name})})},{name:"steps",value:a=>a.steps[0]+a.steps[1],cell:a=>f("span",{class:"pair",children:[f("span",{children:M(a.steps[0])}),
f("span",{children:M(a.steps[1])})]})},{name:"FLOPs",value:a=>a.flops[0]+a.flops[1],cell:s("flops",ne)},{name:"bytes",value:a=>a.bytes[0]+a.bytes[1],cell:s("byt\
es",I)}];return f(ut,{columns:o,rows:n,sort:[2,-1],empty:"There is no step."})}function Gc(t){let e=new Map,{nodes:n,sources:r,saved:i}=t.data;for(let[s,,,o]of i){
let a=s<t.count?r[n.source[s]]:void 0,u=s>=t.count?"inputs and parameters":t.lineOf(s)||"no source line",l=e.get(u)??{line:u,code:a?t.text(a[3]):"",bytes:0,values:[]};
e.set(u,l),l.bytes+=o,l.values.push(s)}return[...e.values()]}function Ks({model:t,go:e,search:n}){let r=Gc(t),i=r.reduce((a,u)=>a+u.bytes,0),s=Math.max(1,...r.map(
a=>a.bytes)),o=[{name:"source line",value:a=>a.line,cell:a=>f("span",{children:[a.line.includes(":")?f("button",{class:"link",title:a.line,onClick:()=>n(`line:${a.
line}`),children:f("bdi",{children:a.line.split("/").at(-1)})}):a.line,f("code",{class:"soft",children:f("bdi",{children:a.code})})]})},{name:"saved",value:a=>a.
bytes,cell:a=>f("span",{children:[f(Ge,{share:a.bytes/s,side:"saved"})," ",I(a.bytes)]})},{name:"values",value:a=>a.values.length,cell:a=>f("span",{children:[M(
a.values.length)," ",f(gt,{model:t,value:a.values[0],go:e})]})}];return f("div",{class:"panel",children:[f("h2",{children:"Saved, by source line"}),f("p",{class:"\
soft",children:`${I(i)} that the caller does not hold anyway. A value that shares memory with another counts once.`}),f(ut,{columns:o,rows:r,sort:[1,-1],empty:"\
Nothing is saved."})]})}function Xs({model:t,go:e}){let n=new Map;for(let h of t.data.ports)!h.into&&h.role==="gradient"&&n.set(h.value,t.text(h.name));let{value:r,
rows:i}=t.data.stats,s=r.map((h,p)=>({value:h,gradient:n.get(h)??"",row:i[p]})),o=(h,p)=>({name:h,value:d=>d.row[p]??NaN,cell:d=>f("span",{class:(p===6||p===7)&&
d.row[p]?"alarm":"",children:Ut(d.row[p])})}),a=[{name:"value",value:h=>h.gradient||t.nameOf(h.value),cell:h=>f("span",{children:[h.gradient&&f("span",{class:"t\
ag",children:["gradient of ",f("bdi",{children:h.gradient})]}),f(gt,{model:t,value:h.value,go:e})]})},o("NaN",6),o("Inf",7),o("norm",5),o("mean",3),o("std",4),o(
"min",1),o("max",2),o("zeros",8),o("count",0)],u=s.filter(h=>h.row[6]||h.row[7]).length,l=s.filter(h=>h.gradient),c=s.filter(h=>!h.gradient);return f("div",{class:"\
panel",children:[f("h2",{children:"Values"}),f("p",{class:u?"alarm":"soft",children:u?`${M(u)} of ${M(s.length)} measured values have NaN or Inf.`:`No NaN and n\
o Inf in ${M(s.length)} measured values.`}),l.length>0&&f("h3",{children:"Gradients"}),l.length>0&&f(ut,{columns:a,rows:l,sort:[u?1:3,-1],empty:""}),f("h3",{children:"\
Other values"}),f(ut,{columns:a,rows:c,sort:[u?1:3,-1],empty:"No other value was measured."})]})}function Ys({model:t,go:e}){let n=new Map;for(let i of t.data.ports)
pe(n,`${i.side?"Backward":"Forward"} ${i.into?"takes":"gives"}: ${i.role}`).push(i);let r=[{name:"name",value:i=>t.text(i.name),cell:i=>f("bdi",{children:t.text(
i.name)})},{name:"type",value:i=>t.text(i.spec),cell:i=>f("code",{children:t.text(i.spec)})},{name:"bytes",value:i=>i.bytes,cell:i=>I(i.bytes)},{name:"step",value:i=>i.
into?t.usersOf(i.value)[0]??-1:i.value,cell:i=>{let s=i.into?t.usersOf(i.value)[0]:i.value;return s===void 0?f("span",{class:"soft",children:"unused"}):f(gt,{model:t,
value:s,go:e})}}];return f("div",{class:"panel",children:[f("h2",{children:"Inputs and outputs"}),[...n].map(([i,s])=>f("details",{open:s.length<=12,children:[f(
"summary",{children:[i," ",f("span",{class:"soft",children:[M(s.length),", ",I(s.reduce((o,a)=>o+a.bytes,0))]})]}),f(ut,{columns:r,rows:s,sort:[2,-1],empty:""})]},
i))]})}var Hc=[["changes","Changes","h"],["details","Details","d"],["code","Code","c"],["memory","Memory","m"],["lines","Lines","l"],["operators","Operators","o"],["va\
lues","Values","v"],["ports","In/out","i"]],_n=class extends V{picture;finder;searchers=new Map;keep=new Map;timer=0;marking=0;changes=Jr(this.props.models);lastChange=-1;state={
...this.begin(location.hash),hovered:null,query:"",found:null,marked:null,at:-1,moment:null,tab:this.props.page.changes?"changes":"details",help:!1,told:"",wide:430};begin(e){
let{models:n}=this.props,{pair:r,unit:i,opened:s}=mi(e,n),o=n[r],a=s??Ve(o);return{pair:r,selected:i,opened:i===null||s?a:Re(o,a,i)}}get model(){return this.props.
models[this.state.pair]}get scene(){return this.kept("scene",[this.model,this.state.opened],()=>ui(this.model,this.state.opened))}get searcher(){let{model:e}=this;
return this.searchers.has(e)||this.searchers.set(e,new Ke(e)),this.searchers.get(e)}kept(e,n,r){let i=this.keep.get(e);if(i&&i.key.length===n.length&&i.key.every(
(o,a)=>o===n[a]))return i.value;let s=r();return this.keep.set(e,{key:n,value:s}),s}componentDidMount(){document.addEventListener("keydown",this.pressed),addEventListener(
"hashchange",this.followed),setTimeout(()=>this.searcher,300),this.state.selected!==null&&this.picture.show(this.visible(this.state.selected))}componentWillUnmount(){
document.removeEventListener("keydown",this.pressed),removeEventListener("hashchange",this.followed)}componentDidUpdate(e,n){let{pair:r,selected:i,opened:s}=this.
state;n.pair===r&&n.selected===i&&n.opened===s||(clearTimeout(this.timer),location.protocol!=="about:"&&(this.timer=window.setTimeout(()=>history.replaceState(null,
"",Vn(r,i,s)),250)))}followed=()=>{let e=this.begin(location.hash);this.setState(e,()=>e.selected!==null&&this.picture.show(this.visible(e.selected)))};visible(e){
return St(this.model,this.scene,e)}go=e=>{let n=this.scene.byUnit.has(e)?this.state.opened:Re(this.model,this.state.opened,e);this.setState({opened:n,selected:e,
hovered:null,...this.momentOf(e)},()=>this.picture.show(this.visible(e)))};momentOf(e){return e!==null&&e>=0&&this.state.tab!=="memory"?{moment:null}:{}}select=e=>{
let{tab:n}=this.state,r=e===z(0)?null:e;this.setState({selected:r,told:"",tab:n==="changes"&&r!==null?"details":n})};fold=e=>{this.picture.hold(e);let n=hi(this.
model,this.state.opened,e),r=this.state.selected,i=r!==null&&!Ht(this.model,n,e)&&this.model.above(r).includes(e);this.setState({opened:n,selected:e===0?this.state.
selected:i||r===null||r<0?z(e):r})};openAll=e=>{this.picture.hold(e),this.setState({opened:di(this.model,this.state.opened,e),selected:e===0?null:z(e)})};turn=(e,n)=>{
this.picture.hold(e);let{model:r}=this,{selected:i}=this.state,s=pi(r,this.state.opened,e,n);this.setState({opened:s,selected:i!==null&&r.above(i).includes(e)?this.
sameIn(e,s,i):i})};sameIn(e,n,r){let{model:i}=this,s=[r,...i.above(r).map(z)],o=s.indexOf(z(e)),a=i.frame(e).units[Dt(i,n,e)];for(let u of s.slice(0,o-1).reverse()){
let l=u<0?i.framePlace[-u-1]:i.place[u],c=a<0?i.frame(-a-1).units[l]:void 0;if(c===void 0)return z(e);a=c}return a}depth=e=>this.setState({opened:ci(this.model,
this.state.opened,e)},()=>{this.state.selected!==null?this.picture.show(this.visible(this.state.selected)):this.picture.fit()});search=e=>{let n=this.searcher.find(
e);this.setState({query:e,found:n,at:-1}),clearTimeout(this.marking),this.marking=window.setTimeout(()=>this.setState({marked:n}),90)};ask=e=>{this.search(e),this.
finder.focus()};goMatch=e=>{let n=this.state.found.units[e];this.setState({at:e}),this.go(n)};nextMatch(e){let{found:n,at:r}=this.state,i=n?.units.length??0;i&&
this.goMatch(r<0?e>0?0:i-1:(r+e+i)%i)}moment=e=>this.setState({moment:e,tab:"memory"});exported=()=>{let e=this.props.page.title.replace(/[^\w.-]+/g,"_").slice(
0,60)||"graph";$i(`${e}.svg`,ki(this.picture,this.props.page.title))};link=()=>{let{pair:e,selected:n,opened:r}=this.state,i=location.href.replace(/#.*$/,"")+Vn(
e,n,r);Mi(i).then(s=>this.setState({told:s}))};choose=e=>{let n=Ve(this.props.models[e]);this.setState({pair:e,opened:n,selected:null,hovered:null,query:"",found:null,
marked:null,at:-1,moment:null})};jump=(e,n)=>{if(e===this.state.pair)return this.go(n);let r=this.props.models[e];this.choose(e),this.setState({opened:Re(r,Ve(r),
n),selected:n},()=>this.picture.show(this.visible(n)))};nextChange(e){let{changes:n}=this,{pair:r,selected:i}=this.state,s=Pn(n,this.props.models,r,i);if(!n.length)
return;let o=s<0?this.lastChange:s;this.lastChange=o<0?e>0?0:n.length-1:(o+e+n.length)%n.length,this.jump(n[this.lastChange].pair,n[this.lastChange].node)}turnAround(e){
let{selected:n,opened:r}=this.state,s=(n===null?[]:[...n<0?[-n-1]:[],...this.model.above(n)]).find(o=>this.model.frame(o).kind==="loop")??this.onlyLoop();s!==void 0&&
this.turn(s,Dt(this.model,r,s)+e)}onlyLoop(){let e=this.scene.boxes.filter(n=>n.unit<0&&this.model.frame(-n.unit-1).kind==="loop");return e.length?-e[0].unit-1:
void 0}pressed=e=>{let n=e.target;if(e.ctrlKey||e.metaKey||e.altKey||/^(INPUT|SELECT|TEXTAREA)$/.test(n.tagName)||e.key==="Enter"&&n.tagName==="BUTTON"||e.key.startsWith(
"Arrow")&&n.closest(".code, .side"))return;let r=this.actions(e)[e.key];r&&(e.preventDefault(),r())};actions(e){let{model:n,scene:r}=this,{selected:i}=this.state,
s=this.picture,o=l=>l!==null&&this.go(l),a=l=>this.state.found?this.nextMatch(l):this.nextChange(l);return{"/":()=>this.finder.focus(),"?":()=>this.setState({help:!this.
state.help}),Escape:()=>this.state.help?this.setState({help:!1}):this.select(null),Enter:()=>{if(i===null)return;let l=i<0?-i-1:r.byUnit.has(i)?n.above(i).find(
c=>r.byUnit.has(z(c))):-this.visible(i)-1;e.shiftKey?this.openAll(l):this.fold(l)},ArrowDown:()=>o(Zn(n,r,i,1)),ArrowUp:()=>o(Zn(n,r,i,-1)),ArrowLeft:()=>o(jn(n,
i,!1)),ArrowRight:()=>o(jn(n,i,!0)),"[":()=>this.turnAround(-1),"]":()=>this.turnAround(1),n:()=>a(1),p:()=>a(-1),"+":()=>s.scaleBy(1.3),"=":()=>s.scaleBy(1.3),
"-":()=>s.scaleBy(1/1.3),f:()=>s.fit(),a:()=>s.fitAll(),...Object.fromEntries(this.tabs().map(([l,,c])=>[c,()=>this.setState({tab:l})])),...Object.fromEntries(Array.
from({length:10},(l,c)=>[String(c),()=>this.depth(Math.max(1,c))]))}}tabs(){let{stats:e}=this.model.data,n=[!this.props.page.changes&&"changes",!e&&"values",!this.
model.timed&&"memory",!this.model.timed&&"lines"];return Hc.filter(([r])=>!n.includes(r))}lit(){let{model:e,scene:n}=this,{selected:r,hovered:i}=this.state,s=i??
r;if(s===null||s===z(0)||i!==null&&n.byUnit.get(i)?.kind==="open"&&r===null)return null;let o=i!==null&&n.byUnit.get(i)?.kind==="open"?r:s;return this.kept("lit",
[n,o],()=>gi(e,n,o))}panel(){let{model:e,go:n,jump:r}=this,{pair:i,tab:s,opened:o,selected:a,moment:u}=this.state,{page:l,models:c}=this.props,h=s==="code"?this.
lit():null;return this.kept("panel",[e,s,o,a,u,h],()=>s==="changes"&&l.changes?f(Be,{page:l,models:c,jump:r,marked:this.changes,at:Pn(this.changes,c,i,a)}):s===
"code"?f(Fe,{model:e,selected:a,go:n,lit:h?.steps??null}):s==="memory"&&e.timed?f(Ai,{model:e,moment:u,go:n,onMoment:this.moment}):s==="lines"&&e.timed?f(Ks,{model:e,
go:n,search:this.ask}):s==="operators"?f(qs,{model:e,search:this.ask}):s==="values"&&e.data.stats?f(Xs,{model:e,go:n}):s==="ports"?f(Ys,{model:e,go:n}):f(yi,{page:l,
model:e,opened:o,selected:a,go:n,jump:r,onFold:this.fold,onOpenAll:this.openAll,onTurn:this.turn}))}bar(){let{page:e,models:n}=this.props,{pair:r,query:i,found:s,
at:o,told:a}=this.state,{model:u}=this,l=fi(u,this.state.opened);return f("header",{children:[f("h1",{title:e.title,children:f("bdi",{children:e.title})}),n.length>
1&&f("select",{"aria-label":"pairs of graphs",value:r,onChange:c=>this.choose(Number(c.currentTarget.value)),children:n.map((c,h)=>f("option",{value:h,children:c.
data.name||`pair ${h+1}`},h))}),f(Ye,{mounted:c=>this.finder=c,model:u,query:i,found:s,at:o,onQuery:this.search,onGo:this.goMatch,onLeave:()=>this.focusPicture()}),
f("span",{class:"group",role:"group","aria-label":"depth",children:[f("button",{title:"close one level",disabled:l<=1,onClick:()=>this.depth(Math.max(1,l-1)),children:"\
−"}),f("span",{class:"soft",title:"frames are open to this depth",children:["depth ",l]}),f("button",{title:"open one level",disabled:l>u.deepest,onClick:()=>this.
depth(l+1),children:"+"})]}),f("span",{class:"group",children:[f("button",{title:"the whole picture (a)",onClick:()=>this.picture.fitAll(),children:"fit"}),f("b\
utton",{title:"copy a link to the selection",onClick:this.link,children:"link"}),f("button",{title:"save the visible part as an SVG file",onClick:this.exported,
children:"SVG"}),f("button",{title:"keys (?)",onClick:()=>this.setState({help:!0}),children:"?"})]}),a&&(a.includes("#")?f("input",{class:"told",readOnly:!0,value:a,
"aria-label":"link",onFocus:c=>c.currentTarget.select()}):f("output",{class:"told",children:a}))]})}focusPicture(){document.querySelector("svg.picture").focus()}caption(){
let{model:e}=this,{hovered:n,selected:r}=this.state,i=n??r;if(i===null)return"";if(i<0)return[e.text(e.frame(-i-1).name),e.text(e.frame(-i-1).label)].filter(Boolean).
join("  ");let s=e.data.sources[e.data.nodes.source[i]]?.[3];return[`${e.nameOf(i)}: ${e.specOf(i)} = ${e.call(i)}`,e.lineOf(i),s===void 0?"":e.text(s)].filter(
Boolean).join("   ")}dragged=e=>{e.buttons===1&&this.setState({wide:Math.max(240,Math.min(innerWidth-200,innerWidth-e.clientX))})};render(){let{model:e,scene:n}=this,
{selected:r,marked:i,tab:s,help:o,moment:a,wide:u,opened:l}=this.state,c=this.kept("marks",[i],()=>({matches:i?.within??null,steps:i?.steps??null}));return f("d\
iv",{class:"app",style:{"--wide":`${u}px`},children:[this.bar(),f("main",{children:[f("div",{class:"stage",children:[f(wn,{mounted:h=>this.picture=h,model:e,scene:n,
opened:l,marks:c,lit:this.lit(),pinned:r!==null&&r>=0,onClick:this.select,onFold:this.fold,onOpenAll:this.openAll,onTurn:this.turn,onHover:this.hover}),f("div",
{class:"legend","aria-hidden":"true",children:[f("span",{class:"forward",children:"forward ↓"}),f("span",{class:"saved",children:"saved"}),f("span",{class:"ba\
ckward",children:"backward ↑"})]}),f("div",{class:"caption",children:f("bdi",{children:this.caption()})})]}),f("div",{class:"grip",onPointerDown:h=>h.currentTarget.
setPointerCapture(h.pointerId),onPointerMove:this.dragged}),f("section",{class:"side",children:[f("nav",{role:"tablist",children:this.tabs().map(([h,p,d])=>f("b\
utton",{role:"tab","aria-selected":s===h,title:`key ${d}`,onClick:()=>this.setState({tab:h}),children:p},h))}),this.panel()]})]}),e.timed&&f(Ze,{model:e,moment:a,
selected:r,onMoment:this.moment}),o&&f(Wc,{changes:this.props.page.changes!==void 0,onClose:()=>this.setState({help:!1})})]})}hover=e=>{e!==this.state.hovered&&
this.setState({hovered:e})}};function Wc({changes:t,onClose:e}){return f("div",{class:"cover",onClick:e,children:f("div",{class:"card",role:"dialog","aria-label":"\
keys",children:[f("h2",{children:"Keys"}),f("dl",{children:Ni(t).map(([n,r])=>[f("dt",{children:f("kbd",{children:n})},n),f("dd",{children:r},`${n} `)])}),f("bu\
tton",{onClick:e,children:"close"})]})})}function qc(t){let e=Qr(document.getElementById("data")?.textContent??"");document.title=e.title||document.title,ee(f(_n,{page:e,models:e.pairs.map(n=>new De(n,
e.pairs.length>1?n.name:e.title))}),t)}var Zs=document.getElementById("app");try{qc(Zs)}catch(t){let e=t instanceof Error?t.message:String(t);ee(f("div",{class:"\
wrong",role:"alert",children:[f("h1",{children:"This page cannot be drawn"}),f("p",{children:t instanceof re?"Its data are not whole, or are not what this page \
reads. The first thing that is wrong:":"Something in the page itself failed:"}),f("pre",{children:e}),f("p",{children:["Write the page again: ",f("code",{children:"\
backprint view SAMPLE -o page.html"}),"."]})]}),Zs)}})();
